"""Pointwise steps of chains and networks: activations, arithmetic, limits, gates and residuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel_core.generator.draw.forms import spellings, tails
from kernel_core.generator.draw.inputs import narrowed
from kernel_core.generator.draw.singles import LAYERS_BY_NAME
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor

COMMON = (
    "relu", "gelu", "sigmoid", "tanh", "silu", "leaky_relu", "softplus", "mish", "elu", "hardswish", "selu",
)  # fmt: skip
"""Half of the activations in chains."""
_OPTIONS = {
    "leaky_relu": ("", "0.2", "negative_slope=0.1"),
    "elu": ("", "alpha=0.5"),
    "celu": ("", "alpha=1.5"),
    "softplus": ("", "beta=2"),
    "gelu": ("", "approximate='tanh'"),
    "hardtanh": ("", "-2.0, 2.0"),
    "softshrink": ("", "0.3"),
    "hardshrink": ("", "0.3"),
}
FORMULAS = {
    "gelu": (
        "0.5 * {0} * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * ({0} + 0.044715 * torch.pow({0}, 3))))",
        "{0} * 0.5 * (1.0 + torch.erf({0} / math.sqrt(2.0)))", "{0} * torch.sigmoid(1.702 * {0})",
    ),
    "swish": ("{0} * torch.sigmoid({0})", "torch.sigmoid({0}) * {0}", "{0} / (1 + torch.exp(-{0}))"),
    "mish": (
        "{0} * torch.tanh(F.softplus({0}))", "torch.mul(torch.tanh(F.softplus({0})), {0})",
        "{0} * torch.tanh(torch.log(1 + torch.exp({0})))",
    ),
    "hard_sigmoid": ("torch.clamp({0} / 6 + 0.5, 0, 1)", "F.relu6({0} + 3) / 6"),
    "hard_swish": (
        "{0} * torch.clamp({0} + 3, 0, 6) / 6", "{0} * torch.clamp(({0} + 3) / 6, min=0, max=1)",
        "{0} * F.relu6({0} + 3.0) / 6.0",
    ),
    "softsign": ("{0} / (1 + torch.abs({0}))", "{0} / (1.0 + {0}.abs())"),
    "softplus": ("torch.log(1 + torch.exp({0}))", "torch.log1p(torch.exp(-{0}.abs())) + torch.relu({0})"),
    "leaky_relu": ("torch.where({0} > 0, {0}, 0.01 * {0})", "torch.maximum({0}, 0.1 * {0})"),
    "elu": ("torch.where({0} > 0, {0}, torch.exp({0}) - 1)",),
    "sigmoid": ("1 / (1 + torch.exp(-{0}))",),
    "tanh": ("(torch.exp(2 * {0}) - 1) / (torch.exp(2 * {0}) + 1)",),
    "gaussian": ("torch.exp(-{0} ** 2)", "torch.exp(-0.5 * {0} * {0})"),
    "squared_relu": ("torch.relu({0}) ** 2", "F.relu({0}).square()"),
    "polynomial": ("{0} ** 3 + 2 * {0} ** 2 - {0} + 1",),
}  # fmt: skip
"""Activations as authors write them out."""
_MODERATE = ("gelu", "swish", "mish", "hard_sigmoid", "hard_swish", "softsign", "leaky_relu")
"""Formulas for values far from zero, as chains have them; others overflow or vanish there."""


def activated(sketch: Sketch, x: Tensor, name: str = "") -> Tensor:
    """Draw a unary operator of the table as a function or a layer."""
    name = name or sketch.rng.choice(COMMON if sketch.chance(0.5) else tails())
    option = sketch.rng.choice(_OPTIONS.get(name, ("",)))
    layer = LAYERS_BY_NAME.get(name.replace("_", ""))
    if layer is not None and sketch.chance(0.3):
        if "=" in option and "'" not in option:
            stem, _, number = option.partition("=")
            option = f"{stem}={sketch.option(stem, number)}"
        called = sketch.layer(("act", "activation", name.split("_")[-1], "nonlin"), f"nn.{layer}({option})")
        return sketch.emit(f"{called}({x})", x.axes, name, dtype=x.dtype)
    function = sketch.rng.choice(spellings(name)).replace("F.", f"{sketch.habits.functional}.")
    return sketch.emit(
        f"{function}({', '.join(filter(None, (str(x), option)))})", x.axes, name, dtype=x.dtype
    )


def is_convolved(sketch: Sketch) -> bool:
    """Return True where the second axis is of channels, as a convolution leaves it."""
    return any("conv" in name for name in sketch.operators)


def written_out(sketch: Sketch, x: Tensor, names: Sequence[str] = _MODERATE) -> Tensor:
    """Draw an activation as its formula."""
    name = sketch.rng.choice(names)
    text = sketch.rng.choice(FORMULAS[name]).format(x).replace("F.", f"{sketch.habits.functional}.")
    return sketch.emit(text, x.axes, name)


def pointwise_step(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw a scale, shift, clamp, residual, gate or activation."""
    return sketch.rng.choice(_POINTWISE if x.rank else _UNARY)(sketch, x)


def scaled(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw arithmetic with a number."""
    number = sketch.number()
    name = sketch.pick("mul", "mul", "add", "sub", "div", "pow", "rsub")
    if name == "pow":
        return sketch.emit(
            sketch.pick("{} ** 2", "torch.pow({}, 2)", "torch.square({})", "{}.square()").format(x),
            x.axes,
            name,
        )
    if name == "rsub":
        return sketch.emit(f"1.0 - {x}", x.axes, name)
    sign = {"mul": "*", "add": "+", "sub": "-", "div": "/"}[name]
    named = {
        "mul": ("scale", "factor", "multiplier", "scaling_factor", "scale_factor", "multiply_value"),
        "div": ("divisor", "temperature", "scale", "divide_value"),
        "add": ("constant", "value", "offset", "add_value"),
        "sub": ("constant", "value", "offset", "subtract_value"),
    }
    number = sketch.setting(sketch.rng.choice(named[name]), number)
    return sketch.emit(f"{x} {sign} {number}", x.axes, name)


def clamped(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw limits."""
    text, name, numbers = sketch.pick(
        ("torch.clamp({}, min={low}, max={high})", "clamp", ("-1.0", "1.0")),
        ("torch.clamp({}, {low}, {high})", "clamp", ("0.0", "6.0")),
        ("{}.clip({low}, {high})", "clip", ("-0.5", "0.5")),
        ("{}.clamp(min={low})", "clamp", ("0.0", "")),
        ("torch.clamp_min({}, {low})", "clamp_min", ("0.1", "")),
        ("torch.clamp({}, max={high})", "clamp", ("", "2.0")),
    )
    stem = sketch.pick("{}_value", "{}_val", "clamp_{}")
    low, high = (
        number and sketch.setting(stem.format(end), number)
        for end, number in zip(("min", "max"), numbers, strict=True)
    )
    return sketch.emit(text.format(x, low=low, high=high), x.axes, name)


def shifted(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw arithmetic with a parameter that broadcasts."""
    if x.rank < 2:
        return scaled(sketch, x)
    sign, name = sketch.pick(("+", "add"), ("+", "add"), ("*", "mul"), ("-", "sub"))
    if sketch.chance(0.15):
        number = sketch.option("initial_value", sketch.number())
        layer = sketch.layer(("scale", "bias", "constant", "offset"), f"nn.Parameter(torch.tensor({number}))")
        return joined_with(sketch, x, Tensor(layer, ()), x.axes)
    convolved = x.rank >= 3 and is_convolved(sketch)
    channel_first = convolved or (x.rank == 4 and sketch.chance(0.5))
    axes = (x.axes[1], *([ONE] * (x.rank - 2))) if channel_first else (x.axes[-1],)
    axes = (ONE, *axes) if channel_first and sketch.chance(0.3) else axes
    value = sketch.parameter(axes, is_given=convolved)
    return sketch.emit(f"{x} {sign} {value}", x.axes, name)


def joined(sketch: Sketch, x: Tensor) -> Tensor:
    """Join another input, which may broadcast, or the value itself."""
    is_new = x.rank and len(sketch.inputs) < 3
    return joined_with(sketch, x, sketch.input(narrowed(sketch, x.axes)) if is_new else x, x.axes)


def joined_with(sketch: Sketch, x: Tensor, other: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """Draw arithmetic on two tensors that broadcast to `axes`."""
    name = sketch.pick("add", "add", "mul", "maximum", "sub", "lerp", "minimum")
    if name == "lerp":
        return sketch.emit(f"torch.lerp({x}, {other}, {sketch.pick('0.3', '0.5', '0.75')})", axes, name)
    if name in ("maximum", "minimum"):
        return sketch.emit(f"torch.{sketch.pick(name, name[:3])}({x}, {other})", axes, name)
    sign = {"add": "+", "mul": "*", "sub": "-"}[name]
    return sketch.emit(f"{x} {sign} {other}", axes, name)


def gated(sketch: Sketch, x: Tensor) -> Tensor:
    """Multiply a value by a function of itself."""
    gate = activated(sketch, x, sketch.pick("sigmoid", "tanh", "softplus", "hardsigmoid", "relu6", ""))
    return sketch.emit(
        sketch.pick(f"{x} * {gate}", f"{gate} * {x}", f"torch.mul({x}, {gate})"), x.axes, "mul"
    )


def selected(sketch: Sketch, x: Tensor) -> Tensor:
    """Choose between two values by a comparison."""
    sign = sketch.pick(">", "<", ">=")
    other = sketch.pick(f"{x} * {sketch.number()}", f"torch.zeros_like({x})", f"-{x}")
    return sketch.emit(
        f"torch.where({x} {sign} {sketch.pick('0', '0.5', '-1.0')}, {x}, {other})", x.axes, "where"
    )


Step = Callable[[Sketch, Tensor], Tensor]
_UNARY: tuple[Step, ...] = (activated, activated, scaled, scaled, clamped, gated, selected, written_out)
_POINTWISE: tuple[Step, ...] = (*_UNARY, activated, shifted, shifted, joined)
