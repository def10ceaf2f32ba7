"""Families that look along a row: reductions, softmax, scans, losses."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from kernel_core.problems import rowwise
from kernel_core.problems.families.elementwise import chain
from kernel_core.problems.frames import (
    draw_row_sizes,
    load,
    matrix_program,
    matrix_setup,
    names_for,
    row_frame,
)
from kernel_core.problems.ops import binary, unary
from kernel_core.problems.program import Argument, Frame, Program, Size
from kernel_core.problems.steps import PROBE_COLS, Step

GROWTH_SAFE = (
    *("relu", "abs", "neg", "leaky_relu", "mul", "div", "add", "sub", "rsub", "sqrt_abs", "log1p_abs"),
)
"""Operations that may follow a sum over thousands of columns without overflow or saturation."""
_SOFTMAX_SCALES = ("8.0", "10.0", "16.0", "20.0", "32.0", "50.0", "64.0", "100.0")


def row_reduce(rng: random.Random) -> Program:
    """A chain, one number a row, and perhaps more on that number."""
    (x,) = names_for(rng, 1)
    rows, cols = draw_row_sizes(rng)
    before = _bent(rng, x, 3)
    reduced = rowwise.reduction(rng.choice(rowwise.REDUCTION_NAMES), x, dim=1)
    steps = (*before, reduced, *chain(rng, x, rng.randint(0, 2), GROWTH_SAFE))
    arguments = (Argument(x, (rows.name, cols.name)),)
    frame = _row_result_frame(x, cols)
    return Program("row_reduce", x, arguments, (rows, cols), frame, load(x), steps, len(before))


def softmax(rng: random.Random) -> Program:
    """Softmax of a bent row, scaled."""
    (x,), sizes = names_for(rng, 1), draw_row_sizes(rng)
    dim = rng.choice((1, -1))
    after = [draw_softmax_scale(rng, x), *chain(rng, x, rng.randint(0, 1))]
    return matrix_program("softmax", x, sizes, [*_bent(rng, x, 2), rowwise.softmax(x, dim), *after])


def log_softmax(rng: random.Random) -> Program:
    """Log-softmax of a bent row, then a chain."""
    (x,), sizes = names_for(rng, 1), draw_row_sizes(rng)
    steps = [*_bent(rng, x, 2), rowwise.log_softmax(x, rng.choice((1, -1))), *_grown(rng, x)]
    return matrix_program("log_softmax", x, sizes, steps)


def cumsum(rng: random.Random) -> Program:
    """A running sum along the row between two chains."""
    (x,), sizes = names_for(rng, 1), draw_row_sizes(rng)
    steps = [*_bent(rng, x, 3), rowwise.cumsum(x, rng.choice((1, -1))), *_grown(rng, x)]
    return matrix_program("cumsum", x, sizes, steps)


def _bent(rng: random.Random, x: str, most: int) -> list[Step]:
    return chain(rng, x, rng.randint(1, most))


def _grown(rng: random.Random, x: str) -> list[Step]:
    return chain(rng, x, rng.randint(1, 2), GROWTH_SAFE)


def loss(rng: random.Random) -> Program:
    """Distance between two tensors: one number a row, or one for all."""
    x, y = names_for(rng, 2)
    rows, cols = draw_row_sizes(rng)
    shape = (rows.name, cols.name)
    distance = _huber(x) if rng.random() < 0.25 else unary(rng.choice(_DISTANCES), x, rng)
    steps: list[Step] = [*chain(rng, x, rng.randint(0, 1)), binary("-", x, y, "full"), distance]
    steps += chain(rng, x, rng.randint(0, 1), ("mul", "log1p_abs", "sqrt_abs", "clamp"))
    of_all = rng.random() < 0.5
    if of_all:
        last, frame = _mean_of_all(x), _scalar_frame(x, cols)
    else:
        last, frame = rowwise.reduction("mean", x, dim=1), _row_result_frame(x, cols)
    arguments = (Argument(x, shape, scaled=of_all), Argument(y, shape, scaled=of_all))
    return Program("loss", x, arguments, (rows, cols), frame, load(x), (*steps, last), len(steps))


_DISTANCES = ("square", "abs", "log1p_abs", "sqrt_abs", "softplus")


def _huber(v: str) -> Step:
    return Step(
        kind="huber",
        word="huber",
        torch=(f"{v} = torch.where(torch.abs({v}) < 1.0, 0.5 * {v} * {v}, torch.abs({v}) - 0.5)",),
        tile=(f"{v} = tl.where(tl.abs({v}) < 1.0, 0.5 * {v} * {v}, tl.abs({v}) - 0.5)",),
        value=lambda x, arguments: np.where(np.abs(x) < 1.0, 0.5 * x * x, np.abs(x) - 0.5),
        rivals=(lambda rng: ("wrong_op", unary("square", v, rng)),),
    )


def _mean_of_all(v: str) -> Step:
    right = rowwise.reduction("mean", v, dim=1)
    return Step(
        kind="mean_all",
        word="mean of all",
        torch=(f"{v} = torch.mean({v})",),
        tile=right.tile,
        value=lambda x, arguments: np.asarray(x[:, :PROBE_COLS].mean(axis=1, keepdims=True)),
        rivals=right.rivals,
        must_change=False,
    )


def draw_softmax_scale(rng: random.Random, v: str) -> Step:
    """Softmax over thousands of columns is tiny: a scale keeps its errors visible."""
    return scale(v, rng.choice(_SOFTMAX_SCALES), rng)


def scale(v: str, constant: str, rng: random.Random) -> Step:
    """A product that belongs to its family: no pair with it is ever reserved."""
    return replace(unary("mul", v, rng, constant=constant), kind="scale")


def _row_result_frame(x: str, cols: Size) -> Frame:
    frame = row_frame(x, matrix_setup(x), f"torch.empty(rows, device={x}.device)", cols=cols.gpu)
    return replace(frame, store=f"tl.store(out_ptr + row, {x})", scratch=f"torch.empty_like({x})")


def _scalar_frame(x: str, cols: Size) -> Frame:
    frame = row_frame(x, matrix_setup(x), f"torch.zeros((), device={x}.device)", cols=cols.gpu)
    store = f"tl.atomic_add(out_ptr, {x} / tl.num_programs(0))"
    return replace(frame, store=store, scratch=f"torch.empty_like({x})")
