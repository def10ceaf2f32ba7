"""Drawn convolutions: rank, channels, kernel, stride, padding, dilation, groups, and sizes that fit them."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from kernel_core.problems.program import Size

Axes = tuple[int, ...]
"""One number for each spatial axis."""
_AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
_IMAGES = {
    1: (2000, 3000, 4096, 6000, 10000, 12000, 16000, 20000, 24000, 40000),
    2: (40, 56, 72, 80, 100, 112, 120, 144, 160, 192, 200, 224, 240, 320),
    3: (10, 14, 18, 20, 28, 30, 36, 40, 44, 56),
}
_CHANNELS = (3, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192)
_BATCHES = (4, 6, 8, 10, 12, 16, 20, 24, 32)
_KERNELS = {1: (3, 5, 7, 9), 2: (2, 3, 3, 4, 5, 7), 3: (2, 3, 3, 3)}
_UNEVEN_KERNELS = {
    2: ((3, 5), (5, 3), (1, 7), (7, 1), (3, 1), (2, 4), (7, 3), (4, 3)),
    3: ((1, 3, 3), (3, 1, 1), (3, 3, 5), (3, 5, 3), (2, 3, 4), (5, 3, 1), (1, 5, 5)),
}
_FLOATS = (4 << 20, 100 << 20)
"""Elements of the larger of input and output."""
_FLOPS = (1e10, 4e11)
_CPU_EXTENT = {1: (150,), 2: (11, 13), 3: (4, 5, 7)}
"""Output pixels along each axis on the CPU: more than one tile in all."""


@dataclass(frozen=True)
class Geometry:
    """One convolution."""

    transposed: bool
    in_channels: Size
    out_channels: Size
    kernel: Axes
    stride: Axes
    padding: Axes
    dilation: Axes
    output_padding: Axes
    groups: int
    bias: bool
    batch: Size
    spatial: tuple[Size, ...]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    def out_extent(self, extent: Axes) -> Axes:
        """Spatial sizes of the output for those of the input."""
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
        if self.transposed:
            parts = zip(extent, self.stride, self.padding, reach, self.output_padding, strict=True)
            return tuple((size - 1) * s - 2 * p + r + extra + 1 for size, s, p, r, extra in parts)
        return tuple(
            (size + 2 * p - r - 1) // s + 1
            for size, s, p, r in zip(extent, self.stride, self.padding, reach, strict=True)
        )

    @property
    def fits(self) -> bool:
        """True if tensors and work at the GPU sizes are in the wanted range."""
        pixels_in = tuple(size.gpu for size in self.spatial)
        pixels_out = self.out_extent(pixels_in)
        if min(pixels_out) < 4:
            return False
        floats_in = self.batch.gpu * self.in_channels.gpu * math.prod(pixels_in)
        floats_out = self.batch.gpu * self.out_channels.gpu * math.prod(pixels_out)
        pairs = self.in_channels.gpu * self.out_channels.gpu // self.groups
        pixels = math.prod(pixels_in if self.transposed else pixels_out)
        flops = 2 * self.batch.gpu * pixels * pairs * math.prod(self.kernel)
        floats = max(floats_in, floats_out)
        if self.groups == self.in_channels.gpu or max(self.kernel) == 1:
            return 4 * _FLOATS[0] <= floats <= _FLOATS[1]
        return _FLOATS[0] <= floats <= _FLOATS[1] and _FLOPS[0] <= flops <= _FLOPS[1]


def draw_geometry(
    rng: random.Random,
    rank: int,
    *,
    transposed: bool = False,
    depthwise: bool = False,
    pointwise: bool = False,
    plain: bool = False,
    simple: bool = False,
) -> Geometry:
    """A convolution with sizes that fit each other, on the GPU and on the CPU.

    With `plain` groups and dilation are 1 and bias is on, as in most chains; with `simple` all options are at
    torch's defaults, without a bias. What a family does not ask for is left to chance.
    """
    while True:
        kernel = (1,) * rank if pointwise else _kernel(rng, rank)
        stride = _per_axis(rng, rank, (2, 2, 3) if rank < 3 else (2,), 0.3 if not transposed else 0.45)
        dilation = _per_axis(rng, rank, (2, 3), 0.2)
        most = [d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True)]
        padding = tuple(most) if rng.random() < 0.4 else _per_axis(rng, rank, (1, 2), 0.4, zero=0)
        if pointwise or plain or simple:
            dilation = (1,) * rank
        if pointwise or simple:
            stride, padding = (1,) * rank, (0,) * rank
        padding = tuple(min(p, d * (k - 1) // 2) for p, d, k in zip(padding, dilation, kernel, strict=True))
        extra = (0,) * rank
        if transposed and min(stride) > 1 and rng.random() < 0.5:
            extra = (1,) * rank
        groups = 1
        if rng.random() < 0.2 and not (plain or pointwise or simple):
            groups = rng.choice((2, 4, 8) if rank < 3 else (2, 4))
        channels = [count for count in _CHANNELS if count % groups == 0 and (rank < 3 or count <= 64)]
        in_gpu, out_gpu = rng.choice(channels), rng.choice([count for count in channels if count > 3])
        if depthwise:
            in_gpu = out_gpu = groups = rng.choice(_CHANNELS[1:])
        cpu_in, cpu_out = _cpu_channels(depthwise, groups, math.prod(kernel))
        images = _IMAGES[rank]
        square = rng.random() < 0.5
        first = rng.choice(images)
        extent = tuple(first if square else rng.choice(images) for _ in range(rank))
        cpu = _cpu_extent(transposed, kernel, stride, padding, dilation)
        drawn = Geometry(
            transposed=transposed,
            in_channels=Size("in_channels", in_gpu, cpu_in),
            out_channels=Size("out_channels", out_gpu, cpu_out),
            kernel=kernel,
            stride=stride,
            padding=padding,
            dilation=dilation,
            output_padding=extra,
            groups=groups,
            bias=plain or (not simple and rng.random() < 0.3),
            batch=Size("batch_size", rng.choice(_BATCHES), 2),
            spatial=tuple(map(Size, _AXES[rank], extent, cpu)),
        )
        if drawn.fits:
            return drawn


def _cpu_channels(depthwise: bool, groups: int, taps: int) -> tuple[int, int]:
    if depthwise:
        return 5, 5
    if groups * taps > 12:
        return groups * 2, groups * 3
    return groups * 3, groups * 5


def _kernel(rng: random.Random, rank: int) -> Axes:
    if rank > 1 and rng.random() < 0.4:
        return rng.choice(_UNEVEN_KERNELS[rank])
    return (rng.choice(_KERNELS[rank]),) * rank


def _per_axis(rng: random.Random, rank: int, values: Axes, chance: float, zero: int = 1) -> Axes:
    if rng.random() >= chance:
        return (zero,) * rank
    if rank > 1 and rng.random() < 0.3:
        return tuple(rng.choice((zero, *values)) for _ in range(rank))
    return (rng.choice(values),) * rank


def _cpu_extent(transposed: bool, kernel: Axes, stride: Axes, padding: Axes, dilation: Axes) -> Axes:
    sizes = []
    for want, k, s, p, d in zip(_CPU_EXTENT[len(kernel)], kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1)
        size = (want - 1 + 2 * p - reach) // s + 1 if transposed else (want - 1) * s + reach + 1 - 2 * p
        sizes.append(max(size, 3 if transposed else 2))
    return tuple(sizes)
