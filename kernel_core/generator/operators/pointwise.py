"""Table of pointwise operators: a signature as torch spells it, and the Triton expression.

The first line of a section says the type of its results: `float` (integers become float32), `same` (the
promoted type of the tensors), `bool`, or `whole` (`same`, integers and truth values only). A `condition`
keeps its own type. Names after the signature are further spellings. Torch's function is the reference.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["float", "same", "bool", "whole"]

_TABLE = """
# float
exp(x): tl.exp(x)
exp2(x): tl.exp2(x)
expm1(x): libdevice.expm1(x)
log(x): tl.log(x)
log2(x): tl.log2(x)
log10(x): libdevice.log10(x)
log1p(x): libdevice.log1p(x)
sqrt(x): tl.sqrt(x)
rsqrt(x): tl.rsqrt(x)
reciprocal(x): 1.0 / x
sin(x): tl.sin(x)
cos(x): tl.cos(x)
tan(x): libdevice.tan(x)
asin(x) arcsin: libdevice.asin(x)
acos(x) arccos: libdevice.acos(x)
atan(x) arctan: libdevice.atan(x)
sinh(x): libdevice.sinh(x)
cosh(x): libdevice.cosh(x)
tanh(x): libdevice.tanh(x)
asinh(x) arcsinh: libdevice.asinh(x)
acosh(x) arccosh: libdevice.acosh(x)
atanh(x) arctanh: libdevice.atanh(x)
atan2(x, other) arctan2: libdevice.atan2(x, other)
erf(x): tl.erf(x)
erfc(x): libdevice.erfc(x)
erfcx(x): libdevice.erfcx(x)
erfinv(x): libdevice.erfinv(x)
lgamma(x) gammaln: libdevice.lgamma(x)
ndtr(x): 0.5 * libdevice.erfc(-0.7071067811865476 * x)
log_ndtr(x): tl.where(x < -1.0, tl.log(0.5 * libdevice.erfcx(-0.7071067811865476 * x)) - 0.5 * x * x, libdevice.log1p(-0.5 * libdevice.erfc(0.7071067811865476 * x)))
ndtri(x): libdevice.normcdfinv(x)
i0(x) modified_bessel_i0: libdevice.cyl_bessel_i0(x)
i0e(x): tl.where(tl.abs(x) < 30.0, tl.exp(-tl.abs(x)) * libdevice.cyl_bessel_i0(x), tl.rsqrt(6.283185307179586 * tl.abs(x)) * (1.0 + (0.125 + (0.0703125 + 0.0732421875 / tl.abs(x)) / tl.abs(x)) / tl.abs(x)))
i1(x) modified_bessel_i1: libdevice.cyl_bessel_i1(x)
i1e(x): tl.where(tl.abs(x) < 30.0, tl.exp(-tl.abs(x)) * libdevice.cyl_bessel_i1(x), tl.where(x > 0.0, 1.0, -1.0) * tl.rsqrt(6.283185307179586 * tl.abs(x)) * (1.0 - (0.375 + (0.1171875 + 0.1025390625 / tl.abs(x)) / tl.abs(x)) / tl.abs(x)))
bessel_j0(x): libdevice.j0(x)
bessel_j1(x): libdevice.j1(x)
bessel_y0(x): libdevice.y0(x)
bessel_y1(x): libdevice.y1(x)
spherical_bessel_j0(x): tl.where(x == 0.0, 1.0, tl.sin(x) / x)
angle(x): tl.where(x < 0.0, 3.141592653589793, tl.where(x == x, 0.0, x))
sinc(x): tl.where(x == 0.0, 1.0, tl.sin(3.141592653589793 * x) / (3.141592653589793 * x))
deg2rad(x): x * 0.017453292519943295
rad2deg(x): x * 57.29577951308232
sigmoid(x) expit: tl.sigmoid(x)
logsigmoid(x) log_sigmoid: tl.minimum(x, 0.0) - libdevice.log1p(tl.exp(-tl.abs(x)))
entr(x): tl.where(x > 0.0, -x * tl.log(x), tl.where(x == 0.0, 0.0, float("-inf")))
xlogy(x, other): tl.where(x == 0.0, 0.0, x * tl.log(other))
xlog1py(x, other): tl.where(x == 0.0, 0.0, x * libdevice.log1p(other))
true_divide(x, other): x / other
logaddexp(x, other): tl.maximum(x, other) + libdevice.log1p(tl.exp(-tl.abs(x - other)))
logaddexp2(x, other): tl.maximum(x, other) + libdevice.log1p(tl.exp2(-tl.abs(x - other))) * 1.4426950408889634
silu(x): x * tl.sigmoid(x)
mish(x): x * libdevice.tanh(tl.maximum(x, 0.0) + libdevice.log1p(tl.exp(-tl.abs(x))))
softsign(x): x / (1.0 + tl.abs(x))
tanhshrink(x): x - libdevice.tanh(x)
gelu_erf(x): 0.5 * x * (1.0 + tl.erf(0.7071067811865476 * x))
gelu_tanh(x): 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
softplus(x, beta=1, threshold=20): tl.where(x * beta > threshold, x, libdevice.log1p(tl.exp(tl.minimum(x * beta, threshold))) / beta)
elu(x, alpha=1.0): tl.where(x > 0.0, x, alpha * libdevice.expm1(tl.minimum(x, 0.0)))
celu(x, alpha=1.0): tl.where(x > 0.0, x, alpha * libdevice.expm1(tl.minimum(x, 0.0) / alpha))
selu(x): 1.0507009873554805 * tl.where(x > 0.0, x, 1.6732632423543772 * libdevice.expm1(tl.minimum(x, 0.0)))
logit_eps(x, low, high): tl.log(tl.minimum(tl.maximum(x, low), high) / (1.0 - tl.minimum(tl.maximum(x, low), high)))
logit_plain(x): tl.log(x / (1.0 - x))
hypot(x, other): libdevice.hypot(x, other)
copysign(x, other): libdevice.copysign(x, other)
power(x, other): libdevice.pow(x, other)
ldexp(x, other): x * tl.exp2(other)
# same
add_(x, other): x + other
sub_(x, other): x - other
mul(x, other) multiply: x * other
neg(x) negative: -x
square(x): x * x
cube(x): x * x * x
abs(x) absolute: tl.abs(x)
sign(x): tl.where(x > 0, 1, tl.where(x < 0, -1, 0))
sgn(x): tl.where(x > 0, 1, tl.where(x < 0, -1, 0))
maximum(x, other): tl.maximum(x, other)
minimum(x, other): tl.minimum(x, other)
fmax(x, other): tl.maximum(x, other)
fmin(x, other): tl.minimum(x, other)
where(condition, x, other): tl.where(condition, x, other)
floor(x): tl.floor(x)
ceil(x): tl.ceil(x)
trunc(x) fix: libdevice.trunc(x)
frac(x): x - libdevice.trunc(x)
round_half_even(x): libdevice.nearbyint(x)
floor_quotient(x, other): tl.floor(x / other)
trunc_quotient(x, other): libdevice.trunc(x / other)
floor_remainder(x, other): x - tl.floor(x / other) * other
fmod_float(x, other): libdevice.fmod(x, other)
trunc_remainder_int(x, other): x % other
trunc_quotient_int(x, other): x // other
floor_remainder_int(x, other): (x % other + other) % other
floor_quotient_int(x, other): (x - (x % other + other) % other) // other
heaviside(x, values): tl.where(x > 0, 1, tl.where(x == 0, values, 0))
nextafter(x, other): libdevice.nextafter(x, other)
lerp(x, end, weight): x + weight * (end - x)
addcmul_(x, one, other, value): x + value * one * other
addcdiv_(x, one, other, value): x + value * (one / other)
relu(x): tl.maximum(x, 0)
relu6(x): tl.minimum(tl.maximum(x, 0), 6)
leaky_relu(x, negative_slope=0.01): tl.where(x > 0, x, x * negative_slope)
prelu_(x, weight): tl.where(x > 0, x, x * weight)
threshold(x, threshold, value): tl.where(x > threshold, x, value)
hardtanh(x, min_val=-1.0, max_val=1.0): tl.minimum(tl.maximum(x, min_val), max_val)
hardsigmoid(x): tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) / 6.0
hardswish(x): x * tl.minimum(tl.maximum(x + 3.0, 0.0), 6.0) / 6.0
softshrink(x, lambd=0.5): tl.where(x > lambd, x - lambd, tl.where(x < -lambd, x + lambd, 0.0))
hardshrink(x, lambd=0.5): tl.where(tl.abs(x) > lambd, x, 0.0)
nan_to(x, nan, high, low): tl.where(x != x, nan, tl.where(x == float("inf"), high, tl.where(x == float("-inf"), low, x)))
huber_(x, delta): tl.where(tl.abs(x) < delta, 0.5 * x * x, delta * (tl.abs(x) - 0.5 * delta))
smooth_(x, beta): tl.where(tl.abs(x) < beta, 0.5 * x * x / beta, tl.abs(x) - 0.5 * beta)
# whole
bitwise_and(x, other) and: x & other
bitwise_or(x, other) or: x | other
bitwise_xor(x, other) xor: x ^ other
bitwise_left_shift(x, other) lshift: x << other
bitwise_right_shift(x, other) rshift: x >> other
invert(x): ~x
# bool
eq(x, other): x == other
ne(x, other) not_equal: x != other
lt(x, other) less: x < other
le(x, other) less_equal: x <= other
gt(x, other) greater: x > other
ge(x, other) greater_equal: x >= other
logical_not(x): x == 0
logical_and(x, other): (x != 0) & (other != 0)
logical_or(x, other): (x != 0) | (other != 0)
logical_xor(x, other): (x != 0) != (other != 0)
isnan(x): x != x
isinf(x): tl.abs(x) == float("inf")
isposinf(x): x == float("inf")
isneginf(x): x == float("-inf")
isfinite(x): tl.abs(x) < float("inf")
signbit(x): libdevice.signbit(x) != 0
isclose_(x, other, rtol, atol): (x == other) | (tl.abs(x - other) <= atol + rtol * tl.abs(other))
"""  # noqa: E501


@dataclass(frozen=True)
class Entry:
    """A pointwise operator."""

    name: str
    parameters: tuple[str, ...]
    defaults: dict[str, Any]
    expression: str
    kind: Kind

    @property
    def required(self) -> tuple[str, ...]:
        """Parameters without a default."""
        return tuple(name for name in self.parameters if name not in self.defaults)

    def text(self, operands: dict[str, str]) -> str:
        """The expression with operands in place of its parameters."""
        tree = ast.parse(self.expression, mode="eval")
        return ast.unparse(_Replaced(operands).visit(tree))


class _Replaced(ast.NodeTransformer):
    def __init__(self, operands: dict[str, str]) -> None:
        self._operands = operands

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Leave out a factor of 1, and a division by it."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and _is_one(node.left):
            return node.right
        return node.left if isinstance(node.op, ast.Mult | ast.Div) and _is_one(node.right) else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A parameter becomes its operand."""
        given = self._operands.get(node.id)
        return node if given is None else ast.parse(given, mode="eval").body


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is float and node.value == 1.0


@functools.cache
def pointwise() -> dict[str, Entry]:
    """Entries by name and by every further spelling."""
    entries: dict[str, Entry] = {}
    kind: Kind = "same"
    for line in _TABLE.strip().splitlines():
        if line.startswith("# "):
            kind = line[2:]  # type: ignore[assignment]
            continue
        head, expression = line.split(": ", 1)
        signature, *aliases = head.replace(") ", ")\n").split("\n")
        function = ast.parse(f"def {signature}: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        names = tuple(argument.arg for argument in function.args.args)
        values = [ast.literal_eval(default) for default in function.args.defaults]
        defaults = dict(zip(names[len(names) - len(values) :], values, strict=True))
        entry = Entry(function.name, names, defaults, expression, kind)
        for name in (function.name, *" ".join(aliases).split()):
            entries[name] = entry
    return entries


Builder = Callable[..., Any]
"""Makes values of the arguments that torch's function takes."""
BUILDERS: dict[str, Builder] = {}
"""Operators that are more than one expression, by name; `operators/` has one module a kind."""


def operator(*names: str) -> Callable[[Builder], Builder]:
    """Register a builder under the last part of torch's names, such as `softmax`."""

    def register(builder: Builder) -> Builder:
        for name in names:
            BUILDERS[name] = builder
        return builder

    return register
