"""Flat schedule: a program computes a block of the output's elements, each on its own."""

from __future__ import annotations

from kernel_core.generator.index import letters
from kernel_core.generator.schedules.written import Context, Written, block_of, store_at

BLOCK = 1024


def write(context: Context) -> Written:
    """Outputs of one shape; their inputs are read at the index of the element."""
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
    plan = "Each program computes one block of elements."
    return context.finish(kernel, {"BLOCK": str(BLOCK)}, f"(triton.cdiv({count}, {BLOCK}),)", plan)
