"""Forms in which a single activation is written: torch's function, its layer, or a formula by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from kernel_core.problems.modules.matmul.operations import WRONG
from kernel_core.problems.modules.matmul.steps import Step
from kernel_core.problems.modules.pointwise import ACTIVATIONS, Pointwise, pointwise

_TANH = "(2.0 * tl.sigmoid(2.0 * {v}) - 1.0)"
_SOFTPLUS = "tl.maximum({v}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({v})))"
_NO_TANH = "Triton has no tanh, and 2 sigmoid(2x) - 1 is the same."
_STABLE = "The form max(x, 0) + log(1 + exp(-|x|)) never overflows."
_REMARKS = {"tanh": _NO_TANH, "mish": _NO_TANH, "softplus": _STABLE, "logsigmoid": _STABLE}
_TITLES = {
    "relu": "ReLU", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "SiLU", "swish": "Swish", "gelu": "GELU",
    "gelu_tanh": "GELU (tanh form)", "softplus": "softplus", "softsign": "softsign", "elu": "ELU",
    "selu": "SELU", "hardsigmoid": "hard sigmoid", "hardswish": "hard swish", "leaky_relu": "leaky ReLU",
    "mish": "Mish", "relu6": "ReLU6", "hardtanh": "hard tanh", "logsigmoid": "log-sigmoid",
    "quick_gelu": "GELU (sigmoid form)", "squared_relu": "squared ReLU", "tanhshrink": "tanh shrink",
    "gaussian": "Gaussian", "snake": "snake", "celu": "CELU", "hardshrink": "hard shrink",
    "softshrink": "soft shrink", "prelu": "PReLU", "threshold": "threshold", "abs": "absolute value",
    "square": "square", "exp": "exponential", "sin": "sine", "cos": "cosine", "neg": "negation",
    "bent_identity": "bent identity", "signed_log": "signed logarithm",
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """An activation: its step, and the lines of `forward` that return it."""

    step: Step
    forward: tuple[str, ...]
    remark: str = ""
    """A sentence on how the kernel computes it."""

    @property
    def title(self) -> str:
        """The operator's name in a sentence."""
        return _TITLES[self.step.operator]

    @property
    def wrong_step(self) -> Step:
        """The step with its plausible fault."""
        return replace(self.step, tile=self.step.wrong)


def plain_form(rng: random.Random) -> Form:
    """Torch's function or layer with what it takes by default."""
    names = ACTIVATIONS if rng.random() < 0.85 else ("abs", "square", "exp", "sin", "cos", "neg")
    one = pointwise(rng.choice(names), rng)
    wrong = WRONG[one.operator].format(v="x")
    step = Step(one.operator, (), (f"x = {one.triton.format(v='x')}",), (f"x = {wrong}",))
    remark = _REMARKS.get(one.operator, "")
    if one.layer and rng.random() < 0.35:
        attribute = rng.choice((one.operator, "activation", "act"))
        step = replace(step, init_lines=(f"self.{attribute} = {one.layer}",))
        return Form(step, (f"return self.{attribute}(x)",), remark)
    return Form(step, (f"return {_function(one, rng)}",), remark)


def _function(one: Pointwise, rng: random.Random) -> str:
    text = one.torch.format(v="x")
    if one.operator == "relu":
        return rng.choice((text, "F.relu(x)", "x.relu()", "torch.nn.functional.relu(x)"))
    if one.operator in ("tanh", "sigmoid") and rng.random() < 0.3:
        return f"x.{one.operator}()"
    return text.replace("F.", "torch.nn.functional.") if rng.random() < 0.4 else text


@dataclass(frozen=True)
class _Configured:
    """An activation with numbers of the constructor; `torch` is over `self.NAME`."""

    operator: str
    numbers: tuple[tuple[str, tuple[str, ...]], ...]
    torch: str
    layer: str
    attributes: tuple[str, ...]
    """Where the layer keeps the numbers."""
    tile: str
    wrong: str


_CONFIGURED = (
    _Configured(
        "leaky_relu", (("negative_slope", ("0.01", "0.1", "0.2", "0.05")),),
        "F.leaky_relu(x, negative_slope=self.negative_slope)", "nn.LeakyReLU(negative_slope)",
        ("negative_slope",),
        "tl.where(x > 0, x, x * negative_slope)", "tl.where(x > 0, x * negative_slope, x)",
    ),
    _Configured(
        "elu", (("alpha", ("1.0", "0.5", "1.5", "2.0")),),
        "F.elu(x, alpha=self.alpha)", "nn.ELU(alpha=alpha)", ("alpha",),
        "tl.where(x > 0, x, alpha * (tl.exp(x) - 1.0))", "tl.where(x > 0, x, alpha * tl.exp(x))",
    ),
    _Configured(
        "celu", (("alpha", ("1.5", "0.5", "2.0")),),
        "F.celu(x, alpha=self.alpha)", "nn.CELU(alpha)", ("alpha",),
        "tl.where(x > 0, x, alpha * (tl.exp(x / alpha) - 1.0))", "tl.where(x > 0, x, tl.exp(x / alpha))",
    ),
    _Configured(
        "hardtanh", (("min_val", ("-1.0", "-2.0", "-0.5")), ("max_val", ("1.0", "2.0", "0.5"))),
        "F.hardtanh(x, min_val=self.min_val, max_val=self.max_val)",
        "nn.Hardtanh(min_val=min_val, max_val=max_val)", ("min_val", "max_val"),
        "tl.minimum(tl.maximum(x, min_val), max_val)", "tl.minimum(tl.maximum(x, 0.0), max_val) - x",
    ),
    _Configured(
        "softplus", (("beta", ("2.0", "0.5", "1.5")),),
        "F.softplus(x, beta=self.beta)", "nn.Softplus(beta=beta)", ("beta",),
        "tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x * beta))) / beta",
        "tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x * beta))) * beta",
    ),
    _Configured(
        "softshrink", (("lambd", ("0.5", "0.3", "0.1")),),
        "F.softshrink(x, self.lambd)", "nn.Softshrink(lambd)", ("lambd",),
        "tl.where(x > lambd, x - lambd, tl.where(x < -lambd, x + lambd, 0.0))",
        "tl.where(tl.abs(x) > lambd, x, 0.0)",
    ),
    _Configured(
        "hardshrink", (("lambd", ("0.5", "0.3", "0.2")),),
        "F.hardshrink(x, self.lambd)", "nn.Hardshrink(lambd)", ("lambd",),
        "tl.where(tl.abs(x) > lambd, x, 0.0)", "tl.where(x > lambd, x - lambd, 0.0)",
    ),
)  # fmt: skip


def configured(rng: random.Random) -> Form:
    """An activation with numbers from the constructor, kept as attributes or in a layer."""
    one = rng.choices(_CONFIGURED, (5, 5, 2, 4, 2, 1, 1))[0]
    values = [(name, rng.choice(choices)) for name, choices in one.numbers]
    with_defaults = rng.random() < 0.5
    as_layer = rng.random() < 0.4
    held = [
        f"self.act.{attribute}" if as_layer else f"self.{name}"
        for (name, _), attribute in zip(values, one.attributes, strict=True)
    ]
    stored = tuple(f"self.{name} = {name}" for name, _ in values)
    step = Step(
        one.operator,
        (),
        (f"x = {one.tile}",),
        (f"x = {one.wrong}",),
        init_args=tuple(f"{name}={value}" if with_defaults else name for name, value in values),
        init_lines=(f"self.act = {one.layer}",) if as_layer else stored,
        constants=() if with_defaults else tuple(values),
        scalars=tuple((name, text, float(value)) for text, (name, value) in zip(held, values, strict=True)),
    )
    return Form(step, ("return self.act(x)",) if as_layer else (f"return {one.torch}",))


def _formula(operator: str, torch: str, triton: str, wrong: str, remark: str = "") -> Form:
    step = Step(operator, (), (f"x = {triton.format(v='x')}",), (f"x = {wrong.format(v='x')}",))
    lines = tuple(torch.split("; "))
    return Form(step, (*lines[:-1], f"return {lines[-1]}"), remark)


def _by_hand() -> tuple[Form, ...]:
    rng = random.Random(0)
    triton: Callable[[str], str] = lambda name: pointwise(name, rng).triton  # noqa: E731
    texts = (
        ("relu", "torch.clamp(x, min=0.0)"),
        ("relu", "torch.maximum(x, torch.zeros_like(x))"),
        ("relu", "torch.where(x > 0, x, torch.zeros_like(x))"),
        ("sigmoid", "1.0 / (1.0 + torch.exp(-x))"),
        ("swish", "x / (1.0 + torch.exp(-x))"),
        ("swish", "torch.sigmoid(x) * x"),
        ("swish", "gate = torch.sigmoid(x); x * gate"),
        ("gelu", "0.5 * x * (1.0 + torch.erf(x / 2.0 ** 0.5))"),
        ("gelu", "cdf = 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)); x * cdf"),
        ("gelu_tanh", "0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))"),
        (
            "gelu_tanh",
            "inner = 0.7978845608 * (x + 0.044715 * x * x * x); 0.5 * x * (1.0 + torch.tanh(inner))",
        ),
        ("softplus", "torch.clamp(x, min=0.0) + torch.log1p(torch.exp(-torch.abs(x)))"),
        ("softsign", "x / (1 + torch.abs(x))"),
        ("softsign", "x / (x.abs() + 1.0)"),
        ("hardsigmoid", "torch.clamp(x / 6.0 + 0.5, 0.0, 1.0)"),
        ("hardsigmoid", "F.relu6(x + 3.0) / 6.0"),
        ("hardswish", "x * F.relu6(x + 3.0) / 6.0"),
        ("hardtanh", "torch.clamp(x, min=-1.0, max=1.0)"),
        ("elu", "torch.where(x > 0, x, torch.exp(x) - 1.0)"),
        ("mish", "x * torch.tanh(F.softplus(x))"),
        ("logsigmoid", "-F.softplus(-x)"),
        (
            "selu",
            "y = torch.where(x > 0, x, 1.6732632423543772 * (torch.exp(x) - 1.0)); 1.0507009873554805 * y",
        ),
    )
    return tuple(
        _formula(name, text, triton(name), WRONG[name], _REMARKS.get(name, "")) for name, text in texts
    )


FORMULAS: tuple[Form, ...] = (
    *_by_hand(),
    _formula("leaky_relu", "torch.where(x > 0, x, 0.1 * x)",
             "tl.where({v} > 0, {v}, 0.1 * {v})", "0.1 * {v}"),
    _formula("leaky_relu", "torch.maximum(x, 0.2 * x)", "tl.maximum({v}, 0.2 * {v})", "tl.maximum({v}, 0.0)"),
    _formula("quick_gelu", "x * torch.sigmoid(1.702 * x)",
             "{v} * tl.sigmoid(1.702 * {v})", "tl.sigmoid({v})"),
    _formula("squared_relu", "torch.relu(x) ** 2",
             "tl.maximum({v}, 0.0) * tl.maximum({v}, 0.0)", "{v} * {v}"),
    _formula("tanhshrink", "x - torch.tanh(x)", "{v} - " + _TANH, "{v} - tl.sigmoid({v})", _NO_TANH),
    _formula("gaussian", "torch.exp(-x * x)", "tl.exp(-{v} * {v})", "tl.exp(-tl.abs({v}))"),
    _formula("snake", "x + torch.sin(x) ** 2", "{v} + tl.sin({v}) * tl.sin({v})", "{v} + tl.sin({v})"),
    _formula("bent_identity", "(torch.sqrt(x * x + 1.0) - 1.0) / 2.0 + x",
             "(tl.sqrt({v} * {v} + 1.0) - 1.0) / 2.0 + {v}", "tl.sqrt({v} * {v} + 1.0) + {v}"),
    _formula("signed_log", "torch.sign(x) * torch.log1p(torch.abs(x))",
             "tl.where({v} > 0, 1.0, -1.0) * tl.log(1.0 + tl.abs({v}))", "tl.log(1.0 + tl.abs({v}))"),
)  # fmt: skip
