"""Shapes with a dimension to work along: seen as (outer, n, inner), the kernels need no other view."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Module
from kernel_core.problems.program import Size, dims_of

_LEAST, _MOST = 12_000_000, 96_000_000
"""Elements of the largest tensor on a GPU: 48 to 384 MB."""


@dataclass(frozen=True)
class Layout:
    """A shape and the dimension of the reduction."""

    sizes: tuple[Size, ...]
    dim: int
    """As written in the problem; may be negative."""
    name: str = ""
    """The named constant that the constructor is given in place of a literal."""

    @property
    def init_input(self) -> str:
        """The expression in `get_init_inputs`."""
        return self.name or str(self.dim)

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """The named constant, if there is one."""
        return ((self.name, str(self.dim)),) if self.name else ()

    @property
    def shape(self) -> str:
        """The names of the sizes, with commas."""
        return dims_of(self.sizes)


_BATCH = (4, 8, 12, 16, 24, 32, 48, 64, 96, 100, 128, 256)
_ROWS = (64, 100, 128, 200, 256, 500, 512, 1000, 1024, 2048, 3000, 4096, 8192, 10000, 16384)
_FEATURES = (
    1000, 1024, 2000, 2048, 3000, 4096, 5000, 8192, 10000, 12288, 16384, 20000, 32000, 32768, 50000, 50257,
    65536, 100000, 131072, 200000, 250000, 262144, 300000, 400000,
)  # fmt: skip
_MIDDLE = (16, 32, 64, 100, 128, 200, 256, 300, 500, 512, 768, 1000, 1024, 1500, 2048, 3000, 4096, 5000)
_CHANNELS = (3, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_IMAGES = (28, 32, 56, 64, 100, 112, 128, 200, 224, 256)
_DEPTHS = (8, 16, 20, 24, 32, 48, 64)
_NAMES: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("batch_size", "dim_size"), ("batch_size", "features"), ("rows", "cols"), ("batch", "hidden")),
    3: (
        ("batch_size", "dim1", "dim2"),
        ("batch_size", "seq_len", "hidden_size"),
        ("batch_size", "channels", "length"),
        ("batch", "tokens", "features"),
    ),
    4: (("batch_size", "channels", "height", "width"), ("batch_size", "features", "dim1", "dim2")),
    5: (
        ("batch_size", "channels", "depth", "height", "width"),
        ("batch", "features", "dim1", "dim2", "dim3"),
    ),
}
_LENGTHS: dict[int, tuple[tuple[int, ...], ...]] = {
    2: (_ROWS, _FEATURES),
    3: (_BATCH, _MIDDLE, _MIDDLE),
    4: (_BATCH, _CHANNELS, _IMAGES, _IMAGES),
    5: (_BATCH, _CHANNELS, _DEPTHS, _DEPTHS, _DEPTHS),
}
_DIM_NAMES = ("", "", "dim", "reduce_dim", "axis", "target_dim")
_CPU: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((3, 1500), (5, 2300), (4, 1100)),
    3: ((3, 13, 19), (2, 21, 37), (3, 9, 45)),
    4: ((2, 5, 7, 9), (2, 6, 5, 11), (3, 4, 9, 7)),
    5: ((2, 4, 3, 5, 7), (2, 6, 3, 4, 5)),
}


def draw_sizes(rng: random.Random, rank: int, most: int = _MOST) -> tuple[Size, ...]:
    """Named sizes of one tensor, large enough on a GPU to be bound by memory."""
    names = rng.choice(_NAMES[rank])
    cpu = rng.choice(_CPU[rank])
    choices = _LENGTHS[rank]
    while True:
        gpu = [rng.choice(lengths) for lengths in choices]
        if min(_LEAST, most // 4) <= math.prod(gpu) <= most:
            return tuple(map(Size, names, gpu, cpu))


def draw_layout(rng: random.Random, ranks: Sequence[int] = (2, 3, 3, 4), most_n: int = 1_000_000) -> Layout:
    """A shape of one of the ranks and a dimension no longer than `most_n`.

    With three or more dimensions, one in the middle is drawn as often as the last.
    """
    while True:
        rank = rng.choice(ranks)
        sizes = draw_sizes(rng, rank)
        dim = _draw_dim(rng, rank)
        if sizes[dim].gpu <= most_n:
            return Layout(sizes, dim, rng.choice(_DIM_NAMES))


def _draw_dim(rng: random.Random, rank: int) -> int:
    places = ("middle", "last", "first") if rank > 2 else ("last", "first")
    place = rng.choices(places, (3, 3, 1) if rank > 2 else (5, 1))[0]
    dim = {"first": 0, "last": rank - 1, "middle": rng.choice(range(1, max(rank - 1, 2)))}[place]
    return dim - rank if rng.random() < 0.25 else dim


def dim_module(layout: Layout, doc: str, forward: tuple[str, ...], inputs: str, rng: random.Random) -> Module:
    """A module with the dimension as its constructor's argument and one input of the layout's shape."""
    argument = rng.choice(("dim: int", "dim: int", "dim"))
    return Module(
        doc=doc,
        init_args=(argument,),
        init_lines=("self.dim = dim",),
        forward_lines=forward,
        sizes=layout.sizes,
        inputs=(inputs.replace("@S@", layout.shape),),
        init_inputs=(layout.init_input,),
        constants=layout.constants,
    )
