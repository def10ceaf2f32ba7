"""Two formulas side by side: joined along the axis, or stacked."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.indexing import kernels
from kernel_core.problems.modules.indexing.draws import (
    DrawProgram,
    Ending,
    Launch,
    Program,
    draw_program,
    formulas_of,
    output_shape,
    problem,
)
from kernel_core.problems.modules.indexing.mapped import row_launch

_FLAT = (
    "A program takes a block of positions, computes both results there and writes them to their two places."
)
_ROW = "A program takes one row in blocks and writes both results of a position."


def axis_joined(rng: random.Random, draw: DrawProgram = draw_program, family: str = "axis_joined") -> Draft:
    """Two formulas over the same views, joined by `cat` or `stack`."""
    program = draw(rng)
    while len(program.names) < 2:
        program = draw(rng)
    reading = program.reading
    axis, length = reading.axis, reading.geometry.length
    one, two = formulas_of(program, 2, rng)
    stacked = rng.random() < 0.35
    if stacked:
        dim = rng.choice((-1, axis.rank))
        result = f"torch.stack(({one.result}, {two.result}), dim={dim})"
        flat_places = ("offs * 2", "offs * 2 + 1")
        row_places = (f"(row * {length} + j) * 2", f"(row * {length} + j) * 2 + 1")
        shape = _stacked_shape(program, length)
    else:
        result = f"torch.cat(({one.result}, {two.result}), dim={axis.dim})"
        whole = f"(2 * {length})"
        flat_places = row_places = (axis.offset("j", whole), axis.offset(f"({length} + j)", whole))
        shape = output_shape(program, f"2 * {length}")
    body = (*one.triton, *two.triton)
    flat = kernels.flat("joined_kernel", reading, body, _stores(flat_places))
    fixed = kernels.call(reading, ("numel",), flat)
    answers: list[Launch] = [
        ("naive", flat, _flat_launch(fixed, 256), _FLAT),
        ("fused", flat, _flat_launch(fixed, 1024), _FLAT),
    ]
    if axis.last:
        row = kernels.rows("joined_kernel", reading, body, _stores(row_places))
        fixed = kernels.call(reading, (), row)
        count = f"out.numel() // (2 * {length})"
        answers.append(("tuned", row, row_launch("joined_kernel", fixed, length, count), _ROW))
    word = "stack" if stacked else "cat"
    doc = f"Two formulas over views of the input, {'stacked' if stacked else 'joined'}."
    ending = Ending((word,), result, shape, doc, answers)
    return problem(rng, family, program, [one, two], ending)


def _stores(places: tuple[str, str]) -> list[str]:
    return [f"tl.store(out_ptr + {at}, value_{k}, mask=mask)" for k, at in enumerate(places, 1)]


def _stacked_shape(program: Program, length: str) -> str:
    shape = output_shape(program, length)
    return "(*x.shape, 2)" if shape == "x.shape" else f"{shape[:-1]}, 2)"


def _flat_launch(fixed: str, block: int) -> tuple[str, ...]:
    return (
        "numel = out.numel() // 2",
        f"joined_kernel[(triton.cdiv(numel, {block}),)]({fixed}, BLOCK={block})",
    )
