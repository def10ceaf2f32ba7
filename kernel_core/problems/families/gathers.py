"""Families that put their first tile together from elsewhere: table look-ups, halves of a row, windows."""

from __future__ import annotations

import random
from dataclasses import replace

from kernel_core.problems.families.elementwise import chain
from kernel_core.problems.frames import draw_row_sizes, names_for, row_frame
from kernel_core.problems.ops import ACTIVATIONS, binary, unary
from kernel_core.problems.program import Argument, Frame, Opening, Program, Size, draw_cpu_size
from kernel_core.problems.steps import Step

_TABLE_NAMES = ("table", "emb", "weight", "codes", "lookup")
_INDEX_NAMES = ("idx", "ids", "tokens", "index", "keys")


def embedding(rng: random.Random) -> Program:
    """Rows of a table by index, then a chain."""
    (v,) = names_for(rng, 1)
    arguments, sizes, frame, opening = draw_look_up(rng, v)
    steps = tuple(chain(rng, v, rng.randint(2, 4)))
    return Program("embedding", v, arguments, sizes, frame, opening, steps)


def draw_look_up(
    rng: random.Random, v: str
) -> tuple[tuple[Argument, Argument], tuple[Size, ...], Frame, Opening]:
    """A table look-up into `v`: index and table, their sizes, the frame and the opening."""
    index, table = rng.choice(_INDEX_NAMES), rng.choice(_TABLE_NAMES)
    rows, cols = draw_row_sizes(rng)
    entries = Size(rng.choice(("V", "VOCAB", "num_entries")), rng.choice((1000, 5000, 30000)), 23)
    argument = Argument(table, (entries.name, cols.name), parameter=rng.random() < 0.5)
    look_up = rng.choice((f"{argument.in_forward}[{index}]", f"F.embedding({index}, {argument.in_forward})"))
    row = f"{v} = tl.load({table}_ptr + r * cols + j, mask=mask, other=0.0)"
    opening = Opening(
        kind="embedding",
        word=f"{v} = rows of {table} by {index}",
        torch=(f"{v} = {look_up}",),
        tile=(f"r = tl.load({index}_ptr + row)", row),
        rivals=(("wrong_index", (f"r = tl.load({index}_ptr + 0)", row)),),
    )
    frame = row_frame(
        v,
        (f"rows, cols = {index}.shape[0], {argument.in_forward}.shape[1]",),
        f"torch.empty(rows, cols, device={index}.device)",
        cols=cols.gpu,
    )
    arguments = (Argument(index, (rows.name,), below=entries.name), argument)
    return arguments, (rows, entries, cols), frame, opening


def gated(rng: random.Random) -> Program:
    """One half of a row gates the other (GLU, SwiGLU, GeGLU and their like), then a chain."""
    x, a, b = names_for(rng, 3)
    sizes, frame, opening, gate = draw_gate(rng, x, a, b)
    steps = (*gate, *chain(rng, a, rng.randint(1, 2)))
    return Program("gated", a, (Argument(x, (sizes[0].name, sizes[1].name)),), sizes, frame, opening, steps)


def draw_gate(
    rng: random.Random, x: str, a: str, b: str
) -> tuple[tuple[Size, Size], Frame, Opening, tuple[Step, ...]]:
    """`x` in halves `a` and `b`, and the steps `a = activation(a) * b`."""
    rows, cols = draw_row_sizes(rng)
    # Twice the columns lie in memory, so the halves are named by the whole.
    whole = replace(cols, gpu=cols.gpu * 2, cpu=cols.cpu * 2)
    second_half = f"tl.load({x}_ptr + row * 2 * cols + cols + j, mask=mask, other=0.0)"
    opening = Opening(
        kind="halves",
        word=f"{a}, {b} = halves of {x}",
        torch=(f"{a}, {b} = {x}.chunk(2, dim=-1)",),
        tile=(f"{a} = tl.load({x}_ptr + row * 2 * cols + j, mask=mask, other=0.0)",),
        rivals=(("wrong_index", (f"{a} = {second_half}",)),),
    )
    frame = row_frame(
        a,
        (f"rows, cols = {x}.shape[0], {x}.shape[1] // 2",),
        f"torch.empty(rows, cols, device={x}.device)",
        cols=cols.gpu,
    )
    gate = (
        unary(rng.choice(ACTIVATIONS), a, rng),
        binary("*", a, b, "full", load=f"{b} = {second_half}"),
    )
    return (rows, whole), frame, opening, gate


def pool1d(rng: random.Random) -> Program:
    """Maximum or mean of sliding windows of `[batch, channels, length]`, then a chain."""
    x, v = names_for(rng, 2)
    kind = rng.choice(("max", "avg"))
    width, stride = rng.randint(2, 5), rng.randint(1, 3)
    names = rng.choice((("B", "C", "L"), ("N", "C", "T"), ("batch_size", "channels", "length")))
    length = rng.choice((1000, 2048, 4000, 8000))
    sizes = (
        Size(names[0], rng.choice((32, 64)), 3),
        Size(names[1], rng.choice((64, 100, 128)), 3),
        Size(names[2], length, draw_cpu_size(rng, 40, 110)),
    )
    frame = row_frame(
        v,
        (
            f"rows, length = {x}.shape[0] * {x}.shape[1], {x}.shape[2]",
            f"cols = (length - {width}) // {stride} + 1",
        ),
        f"torch.empty({x}.shape[0], {x}.shape[1], cols, device={x}.device)",
        cols=(length - width) // stride + 1,
    )
    frame = replace(frame, scalars=("cols", "length"))
    steps = tuple(chain(rng, v, rng.randint(2, 4)))
    opening = _windows(kind, x, v, width, stride)
    return Program("pool1d", v, (Argument(x, names),), sizes, frame, opening, steps)


def _windows(kind: str, x: str, v: str, width: int, stride: int) -> Opening:
    other = "avg" if kind == "max" else "max"
    return Opening(
        kind=f"{kind}_pool1d",
        word=f"{v} = {kind}_pool of {x} width {width} stride {stride}",
        torch=(f"{v} = F.{kind}_pool1d({x}, {width}, stride={stride})",),
        tile=_window_lines(kind, x, v, width, stride),
        rivals=(
            ("wrong_reduction", _window_lines(other, x, v, width, stride)),
            ("off_by_one", _window_lines(kind, x, v, width, stride, taps=width - 1)),
        ),
    )


def _window_lines(
    kind: str, x: str, v: str, width: int, stride: int, taps: int | None = None
) -> tuple[str, ...]:
    tap = f"tl.load({x}_ptr + row * length + j * {stride} + k, mask=mask, other=0.0)"
    first = (
        'tl.full((BLOCK,), float("-inf"), tl.float32)' if kind == "max" else "tl.zeros((BLOCK,), tl.float32)"
    )
    joined = f"tl.maximum({v}, {tap})" if kind == "max" else f"{v} + {tap}"
    mean = (f"{v} = {v} / {width}",) if kind == "avg" else ()
    return (f"{v} = {first}", f"for k in range({taps or width}):", f"    {v} = {joined}", *mean)
