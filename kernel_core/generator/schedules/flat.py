"""Flat schedule: a program computes a block of the output's elements, each on its own."""

from __future__ import annotations

import re
from contextlib import suppress

from kernel_core.generator.index import Group, letters
from kernel_core.generator.ir import Value
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.schedules.written import Context, Written, block_of, store_at
from kernel_core.generator.sizes import product
from kernel_core.generator.values import Unfusable

BLOCK = 1024
_LEAST, _MOST = 512, 65535 * BLOCK
"""Elements of a row from which blocks lie along rows, and those that the second axis of a grid covers."""
_OF_ROW = re.compile(r"\s*\w+ = row( // \w+)?( % \w+)?")


def write(context: Context) -> Written:
    """Outputs of one shape; their inputs are read at the index of the element.

    Where that index would be divided for each element, and rows are long, blocks lie along rows: then the
    number of the row is divided, once a program. A division of `int64` takes longer than a load.
    """
    outputs = context.region.outputs
    value = outputs[0]
    if value.rank == 0:
        kernel = context.kernel([])
        for output in outputs:
            store_at(kernel, output, ([], [], ()))
        return context.finish(kernel, {}, "(1,)", "One program computes the only element.")
    kernel, _, coords, count = block_of(context, value, letters(value.rank))
    for output in outputs:
        store_at(kernel, output, (coords, coords, value.shape))
    if _divides_elements(kernel):
        for axis in range(1, value.rank):
            with suppress(Unfusable):
                if (along := _along_rows(context, value, axis)) is not None:
                    return along
    plan = "Each program computes one block of elements."
    return context.finish(kernel, {"BLOCK": str(BLOCK)}, f"(triton.cdiv({count}, {BLOCK}),)", plan)


def _along_rows(context: Context, value: Value, axis: int) -> Written | None:
    """Blocks of rows that are the axes from `axis` on; None where elements are divided all the same."""
    shape, names = value.shape, letters(value.rank)
    if not _LEAST <= int(product(shape[axis:])) <= _MOST:
        return None
    rows = Group("row", shape[:axis], names[:axis])
    cols = Group("cols", shape[axis:], names[axis:], mask="mask")
    kernel = context.kernel([rows, cols])
    length = kernel.total(product(shape[axis:]), "n_cols")
    number = kernel.total(product(shape[:axis]), "n_rows", is_flat=True, is_argument=False)
    kernel.line("row = tl.program_id(0).to(tl.int64)")
    kernel.line("cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)")
    kernel.line(f"mask = cols < {length}")
    coords = [(rows if k < axis else cols).digit(k if k < axis else k - axis) for k in range(value.rank)]
    for output in context.region.outputs:
        store_at(kernel, output, (coords, coords, shape))
    if _divides_elements(kernel):
        return None
    grid = f"({number}, triton.cdiv({length}, {BLOCK}))"
    return context.finish(kernel, {"BLOCK": str(BLOCK)}, grid, "Each program computes one block of a row.")


def _divides_elements(kernel: Kernel) -> bool:
    """True if a line divides an index that differs between elements."""
    return any(re.search("//|%", line) and not _OF_ROW.fullmatch(line) for line in kernel.raw_lines())
