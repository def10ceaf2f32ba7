"""The three layouts that kernels have, and what surrounds the steps in each."""

from __future__ import annotations

import random
from collections.abc import Iterable

from kernel_core.problems.program import Argument, Frame, Opening, Program, Size, draw_cpu_size
from kernel_core.problems.steps import Step

_ROW_PROLOGUE = ("row = tl.program_id(0)", "j = tl.arange(0, BLOCK)", "i = row * cols + j", "mask = j < cols")
_ROW_BLOCK = ("BLOCK", "triton.next_power_of_2(cols)")

_ROW_LENGTHS = (160, 192, 256, 300, 384, 512, 2048, 3000, 3072, 4096, 5000, 6144, 8192)
_ROW_COUNTS = (2048, 4096, 8192, 16384, 32768, 65536)
_SMALLEST_TILE, _LARGEST_TILE = 1 << 22, 1 << 25

_SIZE_NAMES = (
    ("N", "M"),
    ("B", "D"),
    ("M", "N"),
    ("ROWS", "COLS"),
    ("batch", "dim"),
    ("batch_size", "features"),
    ("BATCH", "HIDDEN"),
    ("T", "C"),
)
_FLAT_NAMES = (*_SIZE_NAMES, ("B", "C", "L"), ("batch", "seq", "dim"), ("B", "H", "W"))

INPUT_NAMES = ("x", "y", "z", "a", "b", "c", "u", "h", "t", "p", "q", "s", "f", "g", "inp", "data", "act")
WEIGHT_NAMES = ("w", "weight", "gamma", "scale", "gain")
BIAS_NAMES = ("b", "bias", "beta", "shift", "offset")


def names_for(rng: random.Random, count: int) -> list[str]:
    """Different names for inputs and variables."""
    return rng.sample(INPUT_NAMES, count)


def load(argument: str) -> Opening:
    """The first tile is an input."""
    return Opening(
        kind="load",
        word=argument,
        torch=(),
        tile=(f"{argument} = tl.load({argument}_ptr + i, mask=mask, other=0.0)",),
    )


def draw_row_sizes(rng: random.Random) -> tuple[Size, Size]:
    """Rows and columns of a matrix of 16 to 128 MB."""
    rows_name, cols_name = rng.choice(_SIZE_NAMES)
    cols = rng.choice(_ROW_LENGTHS)
    fitting = [rows for rows in _ROW_COUNTS if _SMALLEST_TILE <= rows * cols <= _LARGEST_TILE]
    return (
        Size(rows_name, rng.choice(fitting), draw_cpu_size(rng, 5, 14)),
        Size(cols_name, cols, draw_cpu_size(rng, 18, 120)),
    )


def draw_flat_sizes(rng: random.Random) -> tuple[Size, ...]:
    """Two or three dimensions of a tensor of 16 to 128 MB."""
    names = rng.choice(_FLAT_NAMES)
    if len(names) == 2:
        rows, cols = draw_row_sizes(rng)
        return Size(names[0], rows.gpu, rows.cpu), Size(names[1], cols.gpu, cols.cpu)
    gpus = (rng.choice((16, 32, 64)), rng.choice((128, 256, 512)), rng.choice((1024, 2000, 2048)))
    cpus = (3, draw_cpu_size(rng, 5, 11), draw_cpu_size(rng, 18, 60))
    return tuple(map(Size, names, gpus, cpus))


def flat_frame(rng: random.Random, v: str, x: str) -> Frame:
    """One program a block of elements, whatever the shape."""
    return Frame(
        layout="flat",
        setup=(f"n = {x}.numel()",),
        scalars=("n",),
        prologue=("i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "mask = i < n"),
        grid="(triton.cdiv(n, {block}),)",
        constexprs=(("BLOCK", "{block}"),),
        allocation=f"torch.empty_like({x})",
        store=f"tl.store(out_ptr + i, {v}, mask=mask)",
        blocks=(256, rng.choice((256, 512)), rng.choice((2048, 4096))),
        tuned_warps=8,
    )


def row_frame(v: str, setup: tuple[str, ...], allocation: str, *, cols: int) -> Frame:
    """One program a row, the whole row in one tile; `cols` is its length on a GPU.

    Warps are tuned to about eight elements a thread for short rows and sixteen for long ones.
    """
    return Frame(
        layout="rows",
        setup=setup,
        scalars=("cols",),
        prologue=_ROW_PROLOGUE,
        grid="(rows,)",
        constexprs=(_ROW_BLOCK,),
        allocation=allocation,
        store=f"tl.store(out_ptr + i, {v}, mask=mask)",
        tuned_warps=1 if cols <= 256 else 2 if cols <= 512 else 8 if cols <= 4096 else 16,
        row_length=cols,
    )


def matrix_setup(x: str) -> tuple[str, ...]:
    """Sizes of a matrix."""
    return (f"rows, cols = {x}.shape",)


def matrix_program(
    family: str, x: str, sizes: tuple[Size, Size], steps: Iterable[Step], *others: Argument
) -> Program:
    """A matrix in, a matrix of its shape out, row by row; `others` are arguments beside it."""
    frame = row_frame(x, matrix_setup(x), f"torch.empty_like({x})", cols=sizes[1].gpu)
    arguments = (Argument(x, (sizes[0].name, sizes[1].name)), *others)
    return Program(family, x, arguments, sizes, frame, load(x), tuple(steps))
