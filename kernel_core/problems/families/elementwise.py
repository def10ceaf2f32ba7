"""Families without a look along the row: chains of operations on tensors, vectors and outer products."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernel_core.problems.frames import (
    BIAS_NAMES,
    WEIGHT_NAMES,
    draw_flat_sizes,
    draw_row_sizes,
    flat_frame,
    load,
    matrix_program,
    names_for,
    row_frame,
)
from kernel_core.problems.ops import ACTIVATIONS, BINARY_NAMES, BINARY_SIGNS, UNARY_NAMES, binary, unary
from kernel_core.problems.program import Argument, Opening, Program
from kernel_core.problems.steps import Step


def chain(rng: random.Random, v: str, length: int, names: Sequence[str] = UNARY_NAMES) -> list[Step]:
    """So many elementwise steps, no operation twice in a row."""
    steps: list[Step] = []
    while len(steps) < length:
        name = rng.choice(names)
        if not steps or steps[-1].kind != name:
            steps.append(unary(name, v, rng))
    return steps


def elementwise_chain(rng: random.Random) -> Program:
    """Three to six operations on one tensor."""
    (x,) = names_for(rng, 1)
    sizes = draw_flat_sizes(rng)
    return Program(
        family="elementwise_chain",
        v=x,
        arguments=(Argument(x, tuple(size.name for size in sizes)),),
        sizes=sizes,
        frame=flat_frame(rng, x, x),
        opening=load(x),
        steps=tuple(chain(rng, x, rng.randint(3, 6))),
    )


def binary_chain(rng: random.Random) -> Program:
    """Two or three tensors of one shape, joined and bent."""
    x, *others = names_for(rng, rng.randint(2, 3))
    sizes = draw_flat_sizes(rng)
    dims = tuple(size.name for size in sizes)
    steps = chain(rng, x, rng.randint(0, 1))
    for other in others:
        steps.append(binary(rng.choice(BINARY_NAMES), x, other, "full"))
        steps += chain(rng, x, rng.randint(1, 2))
    return Program(
        family="binary_chain",
        v=x,
        arguments=tuple(Argument(name, dims) for name in (x, *others)),
        sizes=sizes,
        frame=flat_frame(rng, x, x),
        opening=load(x),
        steps=tuple(steps),
    )


def bias_activation(rng: random.Random) -> Program:
    """A vector over columns (and perhaps a second one), an activation, and what follows."""
    (x,), sizes = names_for(rng, 1), draw_row_sizes(rng)
    vectors = draw_vectors(rng, (x,), rng.randint(1, 2), sizes[1].name)
    steps = chain(rng, x, rng.randint(0, 1))
    for vector in vectors:
        sign = "+" if vector.name in BIAS_NAMES else "*"
        steps.append(binary(sign, x, vector.name, "vector", torch_argument=vector.in_forward))
        steps += chain(rng, x, 1, ACTIVATIONS)
    steps += chain(rng, x, rng.randint(0, 1))
    return matrix_program("bias_activation", x, sizes, steps, *vectors)


def draw_vectors(rng: random.Random, taken: Sequence[str], count: int, cols: str) -> tuple[Argument, ...]:
    """Vectors over columns: a bias first, then a scale; inputs or parameters together."""
    parameter = rng.random() < 0.5
    bias = rng.choice([name for name in BIAS_NAMES if name not in taken])
    names = [bias, rng.choice([name for name in WEIGHT_NAMES if name not in taken])]
    return tuple(Argument(name, (cols,), parameter) for name in names[:count])


def outer(rng: random.Random) -> Program:
    """Every pair of two vectors, then a chain."""
    a, b, v = names_for(rng, 3)
    rows, cols = draw_row_sizes(rng)
    sign = rng.choice(BINARY_SIGNS)
    joined = {"+": "add", "-": "sub", "*": "mul"}[sign]
    wrong = "+" if sign != "+" else "-"
    loads = (f"{a} = tl.load({a}_ptr + row)", f"{b} = tl.load({b}_ptr + j, mask=j < cols, other=0.0)")
    opening = Opening(
        kind=f"outer_{joined}",
        word=f"{v} = {a} {sign} {b} outer",
        torch=(f"{v} = {a}[:, None] {sign} {b}[None, :]",),
        tile=(*loads, f"{v} = {a} {sign} {b}"),
        rivals=(("wrong_op", (*loads, f"{v} = {a} {wrong} {b}")),),
    )
    setup = (f"rows, cols = {a}.shape[0], {b}.shape[0]",)
    return Program(
        family="outer",
        v=v,
        arguments=(Argument(a, (rows.name,)), Argument(b, (cols.name,))),
        sizes=(rows, cols),
        frame=row_frame(v, setup, f"torch.empty(rows, cols, device={a}.device)", cols=cols.gpu),
        opening=opening,
        steps=tuple(chain(rng, v, rng.randint(2, 4))),
    )
