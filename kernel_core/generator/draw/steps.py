"""Pointwise steps of chains and networks: activations, arithmetic, limits, gates and residuals."""

from __future__ import annotations

from collections.abc import Callable

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


def activated(sketch: Sketch, x: Tensor, name: str = "") -> Tensor:
    """Draw a unary operator of the table as a function or a layer."""
    name = name or sketch.rng.choice(COMMON if sketch.chance(0.5) else tails())
    option = sketch.rng.choice(_OPTIONS.get(name, ("",)))
    layer = LAYERS_BY_NAME.get(name.replace("_", ""))
    if layer is not None and sketch.chance(0.3):
        called = sketch.layer(("act", "activation", name.split("_")[-1], "nonlin"), f"nn.{layer}({option})")
        return sketch.emit(f"{called}({x})", x.axes, name, dtype=x.dtype)
    function = sketch.rng.choice(spellings(name)).replace("F.", f"{sketch.habits.functional}.")
    return sketch.emit(
        f"{function}({', '.join(filter(None, (str(x), option)))})", x.axes, name, dtype=x.dtype
    )


def is_convolved(sketch: Sketch) -> bool:
    """Return True where the second axis is of channels, as a convolution leaves it."""
    return bool(sketch.operators) and "conv" in sketch.operators[0]


def pointwise_step(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw a scale, shift, clamp, residual, gate or activation."""
    return sketch.rng.choice(_POINTWISE)(sketch, x)


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
    channel_first = x.rank >= 3 and is_convolved(sketch)
    axes = (x.axes[1], *([ONE] * (x.rank - 2))) if channel_first else (x.axes[-1],)
    value = sketch.parameter(axes)
    sign, name = sketch.pick(("+", "add"), ("+", "add"), ("*", "mul"), ("-", "sub"))
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
        return sketch.emit(f"torch.{name}({x}, {other})", axes, name)
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
_POINTWISE: tuple[Step, ...] = (
    activated, activated, activated, scaled, scaled, clamped, shifted, joined, gated, selected,
)  # fmt: skip
