"""Flat schedule: a program computes a block of the output's elements, each on its own."""

from __future__ import annotations

from kernel_core.generator.index import Group, letters
from kernel_core.generator.schedules.written import Context, Written, store_at
from kernel_core.generator.sizes import product

BLOCK = 1024


def write(context: Context) -> Written:
    """Outputs of one shape; their inputs are read at the index of the element."""
    outputs = context.region.outputs
    value = outputs[0]
    group = Group("i", value.shape, letters(value.rank), mask="mask")
    kernel = context.kernel([group])
    if value.rank == 0:
        for output in outputs:
            store_at(kernel, output, ([], [], ()))
        return context.finish(kernel, {}, "(1,)", "One program computes the only element.")
    count = kernel.total(product(value.shape), "n_elements", is_flat=True)
    kernel.line("i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
    kernel.line(f"mask = i < {count}")
    coords = [group.digit(axis) for axis in range(value.rank)]
    for output in outputs:
        store_at(kernel, output, (list(coords), list(coords), value.shape))
    grid = f"(triton.cdiv({count}, {BLOCK}),)"
    plan = "Each program computes one block of elements."
    return context.finish(kernel, {"BLOCK": str(BLOCK)}, grid, plan)
