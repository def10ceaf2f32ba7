"""One value for each position of the axis."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.indexing import kernels
from kernel_core.problems.modules.indexing.draws import (
    DrawProgram,
    Ending,
    Launch,
    draw_program,
    formulas_of,
    output_shape,
    problem,
)

_FLAT = "A program takes a block of the flattened result, and works out the places by division."
_ROW = "A program takes one row and walks over it in blocks, so that the places need no division."
_DOCS = (
    "Combines pieces of a tensor along one dimension.", "Elementwise operations on views of the input.",
    "Mixes positions of one dimension.", "A formula over several views of its input.",
)  # fmt: skip


def axis_mapped(rng: random.Random, draw: DrawProgram = draw_program, family: str = "axis_mapped") -> Draft:
    """A formula over views, one result for each position."""
    program = draw(rng)
    reading, length = program.reading, program.reading.geometry.length
    formula = formulas_of(program, 1, rng)[0]
    flat = kernels.flat(
        "mapped_kernel", reading, formula.triton, ("tl.store(out_ptr + offs, value, mask=mask)",)
    )
    fixed = kernels.call(reading, ("out.numel()",), flat)
    answers: list[Launch] = [
        ("naive", flat, _flat_launch(fixed, 256), _FLAT),
        ("fused", flat, _flat_launch(fixed, 1024), _FLAT),
    ]
    if reading.axis.last:
        stores = (f"tl.store(out_ptr + row * {length} + j, value, mask=mask)",)
        row = kernels.rows("mapped_kernel", reading, formula.triton, stores)
        fixed = kernels.call(reading, (), row)
        answers.append(("tuned", row, row_launch("mapped_kernel", fixed, length), _ROW))
    shape = output_shape(program, length)
    ending = Ending((), formula.result, shape, rng.choice(_DOCS), answers)
    return problem(rng, family, program, [formula], ending)


def _flat_launch(fixed: str, block: int) -> tuple[str, ...]:
    return (f"grid = (triton.cdiv(out.numel(), {block}),)", f"mapped_kernel[grid]({fixed}, BLOCK={block})")


def row_launch(name: str, fixed: str, length: str, rows: str = "") -> tuple[str, ...]:
    """A program for each row, with a block as wide as the row up to 2048."""
    return (
        f"BLOCK = min(2048, triton.next_power_of_2({length}))",
        f"{name}[({rows or f'out.numel() // {length}'},)]({fixed}, BLOCK=BLOCK)",
    )
