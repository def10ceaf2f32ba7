"""A drawn problem before it is text: arguments, sizes, how the first tile comes about, and the steps."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_core.problems.steps import PROBE_BLOCK, PROBE_COLS, PROBE_MASK, PROBE_ROWS, Array, Step

LARGEST_VALUE = 500.0
SMALLEST_CHANGE = 0.02
SMALLEST_SPREAD = 0.02


@dataclass(frozen=True)
class Size:
    """A module-level constant: KernelBench-like for a GPU, small and not a power of two for a CPU."""

    name: str
    gpu: int
    cpu: int


def dims_of(sizes: Sequence[Size]) -> str:
    """The names of sizes with commas."""
    return ", ".join(size.name for size in sizes)


@dataclass(frozen=True)
class Argument:
    """An input of `forward`, or a parameter of the module."""

    name: str
    dims: tuple[str, ...]
    """Names of sizes."""
    parameter: bool = False
    below: str = ""
    """An index input: integers below this size."""
    scaled: bool = False
    """Each draw has a scale of its own: for results that average so much that they hardly vary."""

    @property
    def in_forward(self) -> str:
        """Its expression in `forward`."""
        return f"self.{self.name}" if self.parameter else self.name

    def drawn(self, dims: tuple[str, ...]) -> str:
        """The expression that draws it, over the given names of its dimensions."""
        if self.below:
            return f"torch.randint(0, {self.below}, ({', '.join(dims)},))"
        normal = f"torch.randn({', '.join(dims)})"
        return f"(torch.rand(1) + 0.5) * {normal}" if self.scaled else normal


@dataclass(frozen=True)
class Frame:
    """Everything of a kernel and its launch that is not a step.

    `grid` and `constexprs` may say `{block}`, which the grades fill in.
    """

    layout: str
    """`flat`, `rows` or `tiles`: one program a block of elements, a row, or a two-dimensional tile."""
    setup: tuple[str, ...]
    """Lines of `forward` that take sizes from shapes."""
    scalars: tuple[str, ...]
    """Run-time sizes handed to the kernel."""
    prologue: tuple[str, ...]
    """Kernel lines before the first tile: indices and `mask`."""
    grid: str
    constexprs: tuple[tuple[str, str], ...]
    allocation: str
    """The expression that allocates the output."""
    store: str
    """The kernel line that writes the result."""
    scratch: str = ""
    """Allocation of the full tile, for problems with a result that is smaller than the tile."""
    blocks: tuple[int, int, int] = (0, 0, 0)
    """`{block}` of the naive, the fused and the tuned kernel."""
    tuned_warps: int = 4
    row_length: int = 0
    """Entries of a row on a GPU; a power of two leaves no padding in the tile."""


@dataclass(frozen=True)
class Opening:
    """Construction of the first tile, in PyTorch and in the kernel."""

    kind: str
    word: str
    torch: tuple[str, ...]
    """Lines of `forward` before the first step; empty when the variable is an input itself."""
    tile: tuple[str, ...]
    rivals: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Wrong versions of `tile`, each with the fault's name."""


@dataclass(frozen=True)
class Program:
    """A problem: what `forward` does, step by step, to the variable `v`."""

    family: str
    v: str
    arguments: tuple[Argument, ...]
    sizes: tuple[Size, ...]
    frame: Frame
    opening: Opening
    steps: tuple[Step, ...]
    reduced_at: int | None = None
    """Index of the step that makes the result smaller than the tile."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Operations in order, without constants: what the splits look at."""
        return (self.opening.kind, *(step.kind for step in self.steps))

    @property
    def padded(self) -> bool:
        """True if a row's tile has padding lanes on a GPU too (on a CPU it always has)."""
        length = self.frame.row_length
        return bool(length & (length - 1))

    @property
    def words(self) -> str:
        """The plan's first line: the operations in order."""
        return ", ".join((self.opening.word, *(step.word for step in self.steps)))


_probe = np.random.default_rng(20240229)
_PROBE_TILE = _probe.standard_normal((PROBE_ROWS, PROBE_BLOCK)) * PROBE_MASK
_PROBE_ARGUMENTS = _probe.standard_normal((8, PROBE_ROWS, PROBE_BLOCK)) * PROBE_MASK


def probed(program: Program) -> list[Array]:
    """The small padded tile before the first step and after each one."""
    arguments = _ProbeArguments(
        (argument.name, _PROBE_ARGUMENTS[position][0])
        for position, argument in enumerate(program.arguments)
        if len(argument.dims) == 1
    )
    tiles: list[Array] = [_PROBE_TILE]
    with np.errstate(all="ignore"):
        for step in program.steps:
            tiles.append(step.value(tiles[-1], arguments))
    return tiles


class _ProbeArguments(dict[str, Array]):
    """Vectors by name; whatever else a step reads is as large as the tile."""

    def __missing__(self, name: str) -> Array:
        return np.asarray(_PROBE_ARGUMENTS[zlib.crc32(name.encode()) % 8])


def worth_computing(program: Program) -> bool:
    """True if every step changes its input, nothing overflows, and the result is not one constant."""
    tiles = [_lanes(tile) for tile in probed(program)]
    for before, after, step in zip(tiles, tiles[1:], program.steps, strict=False):
        if not np.all(np.abs(after) < LARGEST_VALUE):
            return False
        if step.must_change and np.mean(np.abs(after - before)) < SMALLEST_CHANGE:
            return False
    last = tiles[-1]
    return bool(last.std() > SMALLEST_SPREAD and last.std() > 0.03 * np.abs(last).mean())


def differs(right: Program, wrong: Program) -> bool:
    """True if the results differ enough that no tolerance lets the wrong one pass."""
    expected, got = _lanes(probed(right)[-1]), _lanes(probed(wrong)[-1])
    if expected.shape != got.shape:
        return True
    off = ~(np.abs(expected - got) <= 0.02 + 0.02 * np.abs(expected))
    return bool(off.mean() > 0.2)


def _lanes(tile: Array) -> Array:
    return tile[:, :PROBE_COLS] if tile.shape[1] == PROBE_BLOCK else tile


def draw_cpu_size(rng: random.Random, low: int, high: int) -> int:
    """A size in `[low, high]` that is not a power of two, so that masks matter."""
    while True:
        size = rng.randint(low, high)
        if size & (size - 1):
            return size
