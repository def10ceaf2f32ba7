"""Pointwise operators with arguments that choose among expressions of the table."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import add, as_float, cast, div, mul, point, result_type, slice_axis, sub
from kernel_core.generator.ir import Unsupported, Value
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import is_named


@operator("add")
def _add(x: Any, other: Any, *, alpha: Any = 1) -> Value:
    if isinstance(alpha, int) and int(alpha) == 1:
        if result_type([x, other]) is torch.bool:
            return point("bitwise_or", x, other)
        return add(x, other)
    return add(x, mul(other, alpha))


@operator("sub", "subtract")
def _sub(x: Any, other: Any, *, alpha: Any = 1) -> Value:
    return sub(x, other if isinstance(alpha, int) and int(alpha) == 1 else mul(other, alpha))


operator("rsub")(lambda x, other, alpha=1: _sub(other, x, alpha=alpha))
operator("rmul")(lambda x, other: mul(other, x))
operator("rtruediv", "rdiv")(lambda x, other: div(other, x))


@operator("div", "divide", "truediv")
def _div(x: Any, other: Any, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(x, other)
    return _floor_divide(x, other) if rounding_mode == "floor" else _by_kind("trunc_quotient", x, other)


@operator("floor_divide", "floordiv")
def _floor_divide(x: Any, other: Any) -> Value:
    return _by_kind("floor_quotient", x, other)


operator("remainder", "mod")(lambda x, other: _by_kind("floor_remainder", x, other))


@operator("fmod")
def _fmod(x: Any, other: Any) -> Value:
    is_float = result_type([x, other]).is_floating_point
    return point("fmod_float" if is_float else "trunc_remainder_int", x, other)


def _by_kind(name: str, x: Any, other: Any) -> Value:
    return point(name if result_type([x, other]).is_floating_point else f"{name}_int", x, other)


@operator("pow", "float_power")
def _pow(x: Any, exponent: Any) -> Value:
    if isinstance(x, Value) and isinstance(exponent, int | float) and not is_named(exponent):
        whole = {2.0: "square", 3.0: "cube"}.get(float(exponent))
        if whole:
            return point(whole, x)
        floats = {0.5: "sqrt", -1: "reciprocal", -0.5: "rsqrt"}.get(float(exponent))
        if floats and x.dtype.is_floating_point:
            return point(floats, x)
        if exponent == 1:
            return x
    if not result_type([x, exponent]).is_floating_point:
        raise Unsupported("pow of integers")
    return point("power", x, exponent)


operator("rpow")(lambda x, base: _pow(base, x))
operator("clamp_max")(lambda x, max: point("minimum", x, max))


@operator("clamp", "clip", "clamp_min")
def _clamp(x: Value, min: Any = None, max: Any = None) -> Value:
    value = x if min is None else point("maximum", x, min)
    return value if max is None else point("minimum", value, max)


operator("gelu")(lambda x, approximate="none": point("gelu_erf" if approximate == "none" else "gelu_tanh", x))
operator("logit")(
    lambda x, eps=None: point("logit_plain", x) if eps is None else point("logit_eps", x, eps, 1 - eps)
)


@operator("round")
def _round(x: Value, *, decimals: int = 0) -> Value:
    if not x.dtype.is_floating_point:
        return x
    if decimals == 0:
        return point("round_half_even", x)
    scale = 10.0 ** abs(decimals)
    scaled = mul(x, scale) if decimals > 0 else div(x, scale)
    rounded = point("round_half_even", scaled)
    return div(rounded, scale) if decimals > 0 else mul(rounded, scale)


@operator("nan_to_num")
def _nan_to_num(x: Value, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Value:
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(x.dtype)
    high = limits.max if posinf is None else posinf
    return point("nan_to", x, nan or 0.0, high, limits.min if neginf is None else neginf)


operator("addcmul")(lambda x, tensor1, tensor2, *, value=1: point("addcmul_", x, tensor1, tensor2, value))
operator("addcdiv")(lambda x, tensor1, tensor2, *, value=1: point("addcdiv_", x, tensor1, tensor2, value))
operator("where")(lambda condition, input=None, other=None: point("where", condition, input, other))
operator("masked_fill")(lambda x, mask, value: cast(point("where", mask, value, x), x.dtype))
operator("bitwise_not", "invert")(lambda x: point("logical_not" if x.dtype is torch.bool else "invert", x))
operator(
    *("positive", "pos", "contiguous", "clone", "detach", "alias", "requires_grad_", "identity", "data"),
    *("view_of", "conj", "conj_physical", "resolve_conj", "resolve_neg"),
)(lambda x, **_: x)


@operator("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout")
def _dropout(x: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    if training and float(p) != 0.0:
        raise Unsupported("random numbers")
    return x


@operator("to", "type", "type_as")
def _to(x: Value, *given: Any, dtype: Any = None, **_: Any) -> Value:
    kinds = [argument for argument in (*given, dtype) if isinstance(argument, torch.dtype)]
    kinds += [argument.dtype for argument in given if isinstance(argument, Value)]
    return cast(x, kinds[0]) if kinds else x


_CASTS = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
    "int": torch.int32, "long": torch.int64, "short": torch.int16, "bool": torch.bool, "char": torch.int8,
    "byte": torch.uint8,
}  # fmt: skip
for _name, _dtype in _CASTS.items():
    operator(_name)(lambda x, _dtype=_dtype, **_: cast(x, _dtype))


@operator("isclose")
def _isclose(
    x: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    if equal_nan or not x.dtype.is_floating_point:
        raise Unsupported("isclose of NaNs or of integers")
    return point("isclose_", x, other, rtol, atol)


@operator("prelu")
def _prelu(x: Value, weight: Value) -> Value:
    from kernel_core.generator.build import reshape

    if x.rank > 1 and weight.rank == 1:
        weight = reshape(weight, [weight.shape[0], *([1] * (x.rank - 2))])
    return point("prelu_", x, weight)


@operator("glu")
def _glu(x: Value, dim: int = -1) -> Value:
    at = x.axis(dim)
    half = x.shape[at] // 2
    return mul(slice_axis(x, at, 0, half), point("sigmoid", slice_axis(x, at, half, half)))


@operator("rrelu")
def _rrelu(
    x: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Value:
    if training:
        raise Unsupported("random numbers")
    return point("leaky_relu", x, (lower + upper) / 2)


@operator("mvlgamma", "multigammaln")
def _mvlgamma(x: Value, p: int) -> Value:
    value: Any = 0.25 * p * (p - 1) * 1.1447298858494002
    for j in range(int(p)):
        value = add(point("lgamma", sub(as_float(x), j / 2)), value)
    return value
