"""Norms in several lines: vector norms, moments along dimensions, and groups by views."""

from __future__ import annotations

from collections.abc import Callable

from kernel_core.generator.draw.sizes import ONE
from kernel_core.generator.draw.sketch import Sketch, Tensor


def norm_function(sketch: Sketch) -> list[Tensor]:
    """Draw a norm in several lines."""
    return sketch.rng.choice(_NORMS)(sketch)


def _scaled_by_norm(sketch: Sketch) -> list[Tensor]:
    """L1, L2, Frobenius and maximum norms."""
    x = sketch.input(sketch.axes(sketch.pick("mn", "mn", "bn", "bsn", "bchw")))
    dim = sketch.setting("dim", sketch.pick("1", "1", "-1"))
    low, high = f"{x}.amin(dim={dim}, keepdim=True)", f"{x}.amax(dim={dim}, keepdim=True)"
    texts = (
        (f"{x} / torch.sum(torch.abs({x}), dim={dim}, keepdim=True)", "l1_norm"),
        (f"{x} / {x}.abs().mean(dim={dim}, keepdim=True)", "l1_norm"),
        (f"{x} / torch.norm({x}, p=2, dim={dim}, keepdim=True)", "l2_norm"),
        (f"{x} / torch.sqrt((({x} ** 2).sum(dim={dim}, keepdim=True)) + 1e-12)", "l2_norm"),
        (f"{x} / (torch.linalg.norm({x}, dim={dim}, keepdim=True) + 1e-6)", "l2_norm"),
        (f"{x} / torch.norm({x})", "frobenius_norm"),
        (f"{x} / torch.sqrt(torch.sum({x} * {x}))", "frobenius_norm"),
        (f"{x} / torch.norm({x}, p='fro')", "frobenius_norm"),
        (f"{x} / {x}.abs().amax(dim={dim}, keepdim=True)", "max_norm"),
        (f"({x} - {low}) / ({high} - {low})", "min_max_scaling"),
    )  # fmt: skip
    text, name = sketch.rng.choice(texts)
    return [sketch.emit(text, x.axes, name)]


def _moments(sketch: Sketch, x: Tensor, dims: str) -> Tensor:
    """A value shifted and scaled to mean 0 and variance 1 along dimensions."""
    eps = sketch.setting("eps", sketch.pick("1e-5", "1e-6", "1e-3"))
    mean = sketch.emit(f"{x}.mean(dim={dims}, keepdim=True)", x.axes, "mean")
    variance = sketch.emit(
        sketch.pick(
                f"{x}.var(dim={dims}, keepdim=True, unbiased=False)",
                f"(({x} - {mean}) ** 2).mean(dim={dims}, keepdim=True)",
            ),
        x.axes, "var",
    )  # fmt: skip
    text = sketch.pick(
        f"({x} - {mean}) / torch.sqrt({variance} + {eps})",
        f"({x} - {mean}) * torch.rsqrt({variance} + {eps})",
    )
    return sketch.emit(text, x.axes, "sub", "div")


def _channel_norm(sketch: Sketch) -> list[Tensor]:
    """Batch, instance and layer norm of images, and RMS norm over channels."""
    x = sketch.input(sketch.axes("bchw"))
    channel = (x.axes[1], ONE, ONE)
    if sketch.chance(0.3):
        rms = sketch.emit(f"torch.sqrt(torch.mean({x} ** 2, dim=1, keepdim=True) + 1e-5)", x.axes, "rms_norm")
        return [sketch.emit(f"{x} / {rms}", x.axes, "div")]
    y = _moments(sketch, x, sketch.pick("(0, 2, 3)", "(2, 3)", "(1, 2, 3)", "[2, 3]", "1"))
    if sketch.chance(0.5):
        weight, bias = sketch.parameter(channel, "ones"), sketch.parameter(channel, "zeros")
        y = sketch.emit(f"{y} * {weight} + {bias}", x.axes, "mul", "add")
    return [y]


def _layer_norm(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes(sketch.pick("mn", "bsn")))
    y = _moments(sketch, x, "-1")
    if sketch.chance(0.6):
        y = sketch.emit(
            f"{y} * {sketch.parameter(x.axes[-1:], 'ones')} + {sketch.parameter(x.axes[-1:])}", x.axes, "mul"
        )
    return [y]


def _group_norm(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes("bchw"))
    b, c, h, w = sketch.sizes_of(x)
    groups = sketch.setting("num_groups", sketch.pick("2", "4"))
    split = sketch.emit(
        sketch.pick(
            f"{x}.view({b}, {groups}, -1)", f"{x}.reshape({b}, {groups}, {c} // {groups} * {h} * {w})"
        ),
        (x.axes[0], ONE, ONE), "reshape",
    )  # fmt: skip
    y = _moments(sketch, split, "-1")
    return [sketch.emit(sketch.pick(f"{y}.view({b}, {c}, {h}, {w})", f"{y}.view_as({x})"), x.axes, "reshape")]


def _rms(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes("bsn"))
    gain = sketch.parameter((x.axes[-1],), "ones")
    variance = sketch.emit(
        sketch.pick(f"{x}.pow(2).mean(-1, keepdim=True)", f"({x} * {x}).mean(dim=-1, keepdim=True)"),
        (*x.axes[:-1], ONE), "pow", "mean",
    )  # fmt: skip
    eps = sketch.setting("eps", sketch.pick("1e-6", "1e-5"))
    return [sketch.emit(f"{x} * torch.rsqrt({variance} + {eps}) * {gain}", x.axes, "rsqrt", "mul")]


def _standardised(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes(sketch.pick("mn", "bsn")))
    center = sketch.emit(f"{x} - {x}.mean(dim=-1, keepdim=True)", x.axes, "mean", "sub")
    spread = sketch.pick(
        f"{x}.std(dim=-1, keepdim=True)",
        f"{x}.std(dim=-1, unbiased=False, keepdim=True)",
        f"{x}.abs().amax(dim=-1, keepdim=True)",
    )
    return [sketch.emit(f"{center} / ({spread} + 1e-5)", x.axes, "std", "div")]


_NORMS: tuple[Callable[[Sketch], list[Tensor]], ...] = (
    _scaled_by_norm, _scaled_by_norm, _scaled_by_norm, _channel_norm, _channel_norm, _layer_norm, _group_norm,
    _rms, _standardised,
)  # fmt: skip
