"""Families without a look along the row: chains of operations on tensors, vectors and outer products."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernel_core.problems import frames
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
    (x,) = frames.names_for(rng, 1)
    sizes = frames.draw_flat_sizes(rng)
    arguments = (Argument(x, tuple(size.name for size in sizes)),)
    frame = frames.flat_frame(rng, x, x)
    steps = tuple(chain(rng, x, rng.randint(3, 6)))
    return Program("elementwise_chain", x, arguments, sizes, frame, frames.load(x), steps)


def binary_chain(rng: random.Random) -> Program:
    """Two or three tensors of one shape, joined and bent."""
    x, *others = frames.names_for(rng, rng.randint(2, 3))
    sizes = frames.draw_flat_sizes(rng)
    dims = tuple(size.name for size in sizes)
    steps = chain(rng, x, rng.randint(0, 1))
    for other in others:
        steps.append(binary(rng.choice(BINARY_NAMES), x, other, "full"))
        steps += chain(rng, x, rng.randint(1, 2))
    arguments = tuple(Argument(name, dims) for name in (x, *others))
    frame = frames.flat_frame(rng, x, x)
    return Program("binary_chain", x, arguments, sizes, frame, frames.load(x), tuple(steps))


def bias_activation(rng: random.Random) -> Program:
    """A vector over columns (and perhaps a second one), an activation, and what follows."""
    (x,), sizes = frames.names_for(rng, 1), frames.draw_row_sizes(rng)
    vectors = draw_vectors(rng, (x,), rng.randint(1, 2), sizes[1].name)
    steps = chain(rng, x, rng.randint(0, 1))
    for vector in vectors:
        sign = "+" if vector.name in frames.BIAS_NAMES else "*"
        steps.append(binary(sign, x, vector.name, "vector", torch_argument=vector.in_forward))
        steps += chain(rng, x, 1, ACTIVATIONS)
    steps += chain(rng, x, rng.randint(0, 1))
    return frames.matrix_program("bias_activation", x, sizes, steps, *vectors)


def draw_vectors(rng: random.Random, taken: Sequence[str], count: int, cols: str) -> tuple[Argument, ...]:
    """Vectors over columns: a bias first, then a scale; inputs or parameters together."""
    parameter = rng.random() < 0.5
    bias = rng.choice([name for name in frames.BIAS_NAMES if name not in taken])
    names = [bias, rng.choice([name for name in frames.WEIGHT_NAMES if name not in taken])]
    return tuple(Argument(name, (cols,), parameter) for name in names[:count])


def outer(rng: random.Random) -> Program:
    """Every pair of two vectors, then a chain."""
    a, b, v = frames.names_for(rng, 3)
    rows, cols = frames.draw_row_sizes(rng)
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
    arguments = (Argument(a, (rows.name,)), Argument(b, (cols.name,)))
    setup = (f"rows, cols = {a}.shape[0], {b}.shape[0]",)
    frame = frames.row_frame(v, setup, f"torch.empty(rows, cols, device={a}.device)", cols=cols.gpu)
    steps = tuple(chain(rng, v, rng.randint(2, 4)))
    return Program("outer", v, arguments, (rows, cols), frame, opening, steps)
