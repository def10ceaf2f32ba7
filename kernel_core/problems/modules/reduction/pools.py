"""Pooling in one to three dimensions: windows with stride, padding and dilation, bins, whole planes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size, dims_of

_LENGTHS: dict[int, tuple[int, ...]] = {
    1: (1000, 4096, 5000, 8192, 10000, 16384, 30000, 32768),
    2: (56, 64, 100, 112, 128, 200, 224, 256, 300),
    3: (16, 20, 24, 32, 40, 48, 64),
}
_AXIS_NAMES: dict[int, tuple[tuple[str, ...], ...]] = {
    1: (("length",), ("sequence_length",), ("input_length",)),
    2: (("height", "width"), ("dim1", "dim2")),
    3: (("depth", "height", "width"), ("dim1", "dim2", "dim3")),
}
_WINDOWS = (
    # kernel size, stride (0: as the kernel size), padding, dilation
    (2, 2, 0, 1), (2, 0, 0, 1), (3, 2, 1, 1), (3, 1, 1, 1), (3, 0, 0, 1), (4, 2, 1, 1), (4, 0, 0, 1),
    (5, 2, 2, 1), (5, 1, 2, 1), (3, 2, 0, 1), (3, 1, 1, 2), (3, 2, 1, 2), (4, 1, 2, 2), (2, 1, 1, 3),
)  # fmt: skip
_LONG_WINDOWS = (
    *_WINDOWS,
    (6, 3, 2, 1),
    (7, 1, 3, 1),
    (7, 2, 3, 2),
    (8, 2, 3, 1),
    (9, 3, 4, 1),
    (10, 0, 0, 1),
)


@dataclass(frozen=True)
class _Pool:
    """A drawn window pooling."""

    rank: int
    largest: bool
    size: int
    stride: int
    """Zero where the problem leaves it to the kernel size."""
    padding: int
    dilation: int
    count_padding: bool
    uneven: tuple[tuple[int, ...], ...] = ()
    """Kernel size, stride and padding of each axis, in place of the numbers above."""

    @property
    def layer(self) -> str:
        """Torch's class."""
        return f"nn.{'Max' if self.largest else 'Avg'}Pool{self.rank}d"

    @property
    def name(self) -> str:
        """Torch's name of the operator."""
        return f"{'max' if self.largest else 'avg'}_pool{self.rank}d"


def window_pool(rng: random.Random) -> Draft:
    """Max or average pooling over windows."""
    pool = _draw_pool(rng)
    attribute = rng.choice(("pool", "maxpool" if pool.largest else "avg_pool"))
    module = _window_module(rng, pool, attribute)
    return module.draft((pool.name,), draw_style(rng))


def global_pool(rng: random.Random) -> Draft:
    """The mean or the maximum of each channel."""
    rank = rng.choice((1, 2, 2, 3))
    largest = rng.random() < 0.35
    keep = rng.random() < 0.5
    sizes = _pool_sizes(rng, rank, 7)
    axes = ", ".join(str(axis + 2) for axis in range(rank))
    axes = rng.choice((f"({axes})", f"[{axes}]")) if rank > 1 else axes
    kept = ", keepdim=True" if keep else ""
    ones = "(" + ", ".join("1" for _ in range(rank)) + ")"
    extent = rng.choice(("1", ones)) if rank > 1 else "1"
    layer = f"self.pool = nn.Adaptive{'Max' if largest else 'Avg'}Pool{rank}d({extent})"
    function = "amax" if largest else "mean"
    direct = rng.choice((f"torch.{function}(x, dim={axes}{kept})", f"x.{function}(dim={axes}{kept})"))
    with_layer = keep and rng.random() < 0.6
    return Module(
        doc="Reduces each channel to its " + ("maximum." if largest else "mean."),
        init_lines=(layer,) if with_layer else (),
        forward_lines=("return self.pool(x)",) if with_layer else (f"return {direct}",),
        sizes=sizes,
        inputs=(f"torch.randn({dims_of(sizes)})",),
    ).draft(("global_max" if largest else "global_mean",), draw_style(rng))


def adaptive_pool(rng: random.Random) -> Draft:
    """Average or max pooling to a given output size; the bins may overlap."""
    largest = rng.random() < 0.35
    sizes = _pool_sizes(rng, 2, 7)
    layer = f"nn.Adaptive{'Max' if largest else 'Avg'}Pool2d"
    module = Module(
        doc=f"{'Maximum' if largest else 'Mean'} of bins, for a fixed output size.",
        init_args=("output_size: int",),
        init_lines=(f"self.pool = {layer}((output_size, output_size))",),
        forward_lines=("return self.pool(x)",),
        sizes=(*sizes, Size("output_size", rng.choice((5, 6, 7, 7, 8, 14)), 3)),
        inputs=(f"torch.randn({dims_of(sizes)})",),
        init_inputs=("output_size",),
    )
    name = f"adaptive_{'max' if largest else 'avg'}_pool2d"
    return module.draft((name,), draw_style(rng))


def _draw_pool(rng: random.Random) -> _Pool:
    """Max or average pooling with usual settings, or with sides that differ."""
    rank = rng.choice((1, 2, 2, 3))
    largest = rng.random() < 0.5
    choices = _LONG_WINDOWS if rank < 3 else _WINDOWS
    size, stride, padding, dilation = rng.choice([window for window in choices if largest or window[3] == 1])
    uneven = _uneven(rng, rank) if rank > 1 and rng.random() < 0.25 else ()
    return _Pool(rank, largest, size, stride, padding, dilation, rng.random() < 0.75, uneven)


def _uneven(rng: random.Random, rank: int) -> tuple[tuple[int, ...], ...]:
    """Kernel size, stride and at times padding, not the same along all axes."""
    while True:
        kernel = tuple(rng.choice((1, 2, 3, 3, 4, 5)) for _ in range(rank))
        stride = tuple(rng.choice((1, 2, extent)) for extent in kernel)
        padding = tuple(rng.randint(0, extent // 2) for extent in kernel)
        if len(set(kernel)) > 1:
            return (kernel, stride, padding) if rng.random() < 0.6 else (kernel, stride, (0,) * rank)


def _uneven_module(rng: random.Random, pool: _Pool, attribute: str) -> Module:
    """Tuples for kernel size, stride and padding, given to the constructor or written out."""
    names = ("kernel_size", "stride", "padding")
    texts = [str(setting) for setting in pool.uneven]
    given = rng.random() < 0.7
    inside = [f"{name}={name if given else text}" for name, text in zip(names, texts, strict=True)]
    inside += ["count_include_pad=False"] if not pool.largest and not pool.count_padding else []
    tensor = _pool_sizes(rng, pool.rank, max(pool.uneven[0]) + 3)
    source = rng.choice(("rand", "randn"))
    return Module(
        doc=f"{'Max' if pool.largest else 'Average'} pooling over {pool.rank}D windows with unequal sides.",
        init_args=tuple(f"{name}: tuple" for name in names) if given else (),
        init_lines=(f"self.{attribute} = {pool.layer}({', '.join(inside)})",),
        forward_lines=(f"return self.{attribute}(x)",),
        sizes=tensor,
        inputs=(f"torch.{source}({dims_of(tensor)})",),
        init_inputs=names if given else (),
        constants=tuple(zip(names, texts, strict=True)) if given else (),
    )


def _window_module(rng: random.Random, pool: _Pool, attribute: str) -> Module:
    """The reference; `attribute` is the layer's name."""
    if pool.uneven:
        return _uneven_module(rng, pool, attribute)
    arguments = ["kernel_size: int"]
    names = ["kernel_size"]
    sizes = [Size("kernel_size", pool.size, pool.size)]
    text = ["kernel_size=kernel_size"]
    given = (
        ("stride", pool.stride, "None"),
        ("padding", pool.padding, "0"),
        ("dilation", pool.dilation, "1"),
    )
    for name, value, default in given:
        if name == "dilation" and not pool.largest:
            continue
        if str(value) == default or (name == "stride" and not value):
            if rng.random() < 0.5 or name == "stride":
                arguments.append(f"{name}: int = {default}")
                text.append(f"{name}={name}")
            continue
        arguments.append(f"{name}: int")
        names.append(name)
        sizes.append(Size(name, value, value))
        text.append(f"{name}={name}")
    # Arguments without a default stand before those with one.
    arguments.sort(key=lambda argument: "=" in argument)
    if not pool.largest and not pool.count_padding:
        text.append("count_include_pad=False")
    reach = pool.dilation * (pool.size - 1) + 1
    tensor = _pool_sizes(rng, pool.rank, reach + 2)
    source = rng.choice(("rand", "randn"))
    word = "Max" if pool.largest else "Average"
    return Module(
        doc=f"{word} pooling over {pool.rank}D windows.",
        init_args=tuple(arguments),
        init_lines=(f"self.{attribute} = {pool.layer}({', '.join(text)})",),
        forward_lines=(f"return self.{attribute}(x)",),
        sizes=(*tensor, *sizes),
        inputs=(f"torch.{source}({dims_of(tensor)})",),
        init_inputs=tuple(names),
    )


def _pool_sizes(rng: random.Random, rank: int, cpu: int) -> tuple[Size, ...]:
    names = rng.choice(_AXIS_NAMES[rank])
    while True:
        batch, channels = rng.choice((8, 12, 16, 24, 32, 64)), rng.choice((3, 16, 24, 32, 48, 64, 96, 128))
        lengths = [rng.choice(_LENGTHS[rank]) for _ in names]
        if 12_000_000 <= batch * channels * math.prod(lengths) <= 96_000_000:
            break
    channel_name = rng.choice(("channels", "features", "in_channels"))
    axes = map(Size, names, lengths, range(cpu, cpu + rank))
    return (Size("batch_size", batch, 2), Size(channel_name, channels, 3), *axes)
