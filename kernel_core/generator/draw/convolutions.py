"""Convolution layers by themselves, with drawn options as numbers or as arguments of the constructor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.generator.draw.sizes import KINDS, ONE, Axis
from kernel_core.generator.draw.sketch import MOST_ELEMENTS, Sketch, Tensor

CONVOLUTIONS = tuple(f"Conv{kind}{rank}d" for kind in ("", "Transpose") for rank in (1, 2, 3))
Extents = tuple[int, ...]
"""One number for each spatial axis."""
_KERNELS = {1: (3, 5, 7, 9), 2: (2, 3, 3, 4, 5, 7), 3: (2, 3, 3, 3, 5)}
_UNEVEN = {
    2: ((3, 5), (5, 3), (1, 7), (7, 1), (3, 1), (2, 4), (7, 3), (5, 7)),
    3: ((1, 3, 3), (3, 1, 1), (3, 3, 5), (3, 5, 3), (2, 3, 4), (5, 3, 1), (3, 5, 7)),
}
_SPACE = {1: "l", 2: "hw", 3: "dhw"}


@dataclass(frozen=True)
class _Geometry:
    """Options of a convolution, each with a number for each spatial axis."""

    is_transposed: bool
    kernel: Extents
    stride: Extents
    padding: Extents
    output_padding: Extents
    dilation: Extents
    groups: int

    def out(self, space: Extents) -> Extents:
        """Return the extents of the result (torch's formulas of `Conv2d` and `ConvTranspose2d`)."""
        sizes = []
        for n, k, s, p, more, d in zip(
            space, self.kernel, self.stride, self.padding, self.output_padding, self.dilation, strict=True
        ):
            reach = d * (k - 1)
            sizes.append(
                (n - 1) * s - 2 * p + reach + more + 1
                if self.is_transposed
                else (n + 2 * p - reach - 1) // s + 1
            )
        return tuple(sizes)


def single_convolution(sketch: Sketch, name: str) -> list[Tensor]:
    """Draw one layer of `CONVOLUTIONS`, as problems of level 1 have it."""
    rank, is_transposed = int(name[-2]), "Transpose" in name
    b, c, *space = sketch.axes("bc" + _SPACE[rank])
    pixels = b.gpu * math.prod(axis.gpu for axis in space)
    is_depthwise = not is_transposed and sketch.chance(0.12)
    out = c if is_depthwise else sketch.axis("p", _filters(sketch, pixels))
    geometry = _geometry(sketch, rank, is_transposed)
    while not _fits(geometry, b, out, space):
        geometry = _geometry(sketch, rank, is_transposed)
    arguments = _arguments(sketch, geometry, 0.5, c.text if is_depthwise else "")
    arguments += _bias(sketch, 0.8)
    x = sketch.input((b, c, *space))
    return [_called(sketch, x, out, geometry, arguments, ())]


def chained_convolution(sketch: Sketch, x: Tensor, out: Axis | None, keep: bool = False) -> Tensor:
    """Draw a layer in a chain or a network; `keep` keeps the extents."""
    _, channels, *space = x.axes
    rank = len(space)
    kinds = ("plain", "plain", "plain", "plain", "pointwise")
    kind = sketch.pick(*kinds, *(() if keep else ("strided", "depthwise", *["transposed"] * 5)))
    geometry = _chained(sketch, rank, kind, keep)
    zeros = (0,) * rank
    while not _fits(geometry, ONE, ONE, space) or (keep and geometry.out(zeros) != zeros):
        geometry = _chained(sketch, rank, kind, keep)
    if kind == "strided":
        axes = tuple(axis.over(2) for axis in space)
    else:
        more = geometry.out(zeros)  # with a stride of 1, or transposed, an extent is a multiple and a sum
        axes = tuple(axis.times(geometry.stride[0]).plus(n) for axis, n in zip(space, more, strict=True))
    is_depthwise = kind == "depthwise"
    out = channels if is_depthwise else out or sketch.axis("p")
    arguments = _arguments(sketch, geometry, 0.3, channels.text if is_depthwise else "")
    arguments += _bias(sketch, 0.2)
    return _called(sketch, x, out, geometry, arguments, (x.axes[0], out, *axes))


def _called(
    sketch: Sketch, x: Tensor, out: Axis, geometry: _Geometry, arguments: str, axes: Sequence[Axis]
) -> Tensor:
    """Add the layer and the line that calls it."""
    rank = len(geometry.kernel)
    kind = "Transpose" if geometry.is_transposed else ""
    stem = f"conv{'_transpose' if kind else ''}{rank}d"
    names = ("conv", "conv", "conv1", f"conv{rank}d", stem, "layer")
    layer = sketch.layer(names, f"nn.Conv{kind}{rank}d({x.axes[1].text}, {out.text}, {arguments})")
    return sketch.emit(f"{layer}({x})", axes, stem)


def _bias(sketch: Sketch, share: float) -> str:
    """Return the option of a bias in a share of layers; most have none, as an argument by its default."""
    if not sketch.chance(share):
        return ""
    return f", bias={sketch.option('bias', str(sketch.chance(0.12)), str(sketch.chance(0.12)))}"


def _chained(sketch: Sketch, rank: int, kind: str, keep: bool) -> _Geometry:
    """Draw options with which the extents of the result are a factor and a sum, or halves for `strided`."""
    ones, zeros = (1,) * rank, (0,) * rank
    if kind == "strided":
        return _Geometry(False, (3,) * rank, (2,) * rank, ones, zeros, ones, 1)
    if kind == "pointwise":
        return _Geometry(False, ones, ones, zeros, zeros, ones, 1)
    kernel = _kernel(sketch, rank, 0.15)
    half = tuple((k - 1) // 2 for k in kernel)
    padding = half if keep or sketch.chance(0.4) else zeros
    if kind != "transposed":
        return _Geometry(False, kernel, ones, padding, zeros, ones, 1)
    stride = (sketch.pick(1, 2, 2),) * rank
    is_longer = stride[0] > 1 and sketch.chance(0.4)
    return _Geometry(True, kernel, stride, padding, ones if is_longer else zeros, ones, 1)


def _kernel(sketch: Sketch, rank: int, uneven: float) -> Extents:
    if rank > 1 and sketch.chance(uneven):
        return tuple(sketch.pick(*_UNEVEN[rank]))
    return (sketch.pick(*_KERNELS[rank]),) * rank


def _geometry(sketch: Sketch, rank: int, is_transposed: bool) -> _Geometry:
    ones, zeros = (1,) * rank, (0,) * rank
    kernel = ones if sketch.chance(0.06) else _kernel(sketch, rank, 0.35)
    is_plain = sketch.chance(0.35)
    stride = ones if is_plain else _per_axis(sketch, (2, 2, 3) if rank < 3 else (2,), ones, 0.4)
    dilation = ones if is_plain else _per_axis(sketch, (2, 3), ones, 0.2)
    most = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    padding = zeros if is_plain or sketch.chance(0.4) else most
    if not is_plain and sketch.chance(0.3):
        padding = tuple(map(min, _per_axis(sketch, (1, 2), zeros, 1.0), most))
    is_longer = is_transposed and min(stride) > 1 and sketch.chance(0.5)
    groups = 1 if is_plain or sketch.chance(0.75) else sketch.pick(2, 4)
    return _Geometry(is_transposed, kernel, stride, padding, ones if is_longer else zeros, dilation, groups)


def _per_axis(sketch: Sketch, values: Extents, usual: Extents, share: float) -> Extents:
    if not sketch.chance(share):
        return usual
    if len(usual) > 1 and sketch.chance(0.3):
        return tuple(sketch.pick(usual[0], *values) for _ in usual)
    return (sketch.pick(*values),) * len(usual)


def _filters(sketch: Sketch, pixels: int) -> int:
    """Return a number of filters with which the result is no larger than an input may be."""
    kind = KINDS["p"]
    numbers = kind.literal if sketch.habits.sizes == "small" else kind.gpu
    return sketch.rng.choice(
        [number for number in numbers if number * pixels <= MOST_ELEMENTS] or numbers[:1]
    )


def _fits(geometry: _Geometry, batch: Axis, filters: Axis, space: Sequence[Axis]) -> bool:
    for at in ("gpu", "cpu"):
        maps = getattr(batch, at) * getattr(filters, at)
        out = geometry.out(tuple(getattr(axis, at) for axis in space))
        if min(out) < 1 or maps * math.prod(out) > 2 * MOST_ELEMENTS:
            return False
    return True


def _arguments(sketch: Sketch, geometry: _Geometry, listed: float, channels: str) -> str:
    """Return the arguments behind the channels; `channels` are the groups of a depthwise layer.

    In a share `listed` of calls options at torch's defaults are written too.
    """
    rows = [("stride", geometry.stride, 1), ("padding", geometry.padding, 0)]
    if geometry.is_transposed:
        rows.append(("output_padding", geometry.output_padding, 0))
    rows.append(("dilation", geometry.dilation, 1))
    is_listed = sketch.chance(listed)
    kernel = sketch.option("kernel_size", _text(sketch, geometry.kernel))
    rank = len(geometry.kernel)
    if kernel == "kernel_size" and rank > 1 and sketch.settings[kernel].isdigit() and sketch.chance(0.25):
        kernel = f"({', '.join([kernel] * rank)})"
    texts = [f"kernel_size={kernel}" if sketch.chance(0.3) else kernel]
    for name, values, usual in rows:
        if is_listed or set(values) != {usual}:
            default = str(usual) if len({*values}) == 1 else f"({', '.join([str(usual)] * len(values))})"
            texts.append(f"{name}={sketch.option(name, _text(sketch, values), default)}")
    if channels:
        texts.append(f"groups={channels}")
    elif is_listed or geometry.groups > 1:
        texts.append(f"groups={sketch.option('groups', str(geometry.groups), '1')}")
    return ", ".join(texts)


def _text(sketch: Sketch, values: Extents) -> str:
    """Return the numbers of all axes as a tuple, or as one number where they are equal."""
    is_tuple = len({*values}) > 1 or (len(values) > 1 and sketch.chance(0.08))
    return f"({', '.join(map(str, values))})" if is_tuple else str(values[0])
