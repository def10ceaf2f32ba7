"""Flat schedule: a program computes a block of the output's elements, each on its own."""

from __future__ import annotations

import re
from contextlib import suppress

from kernel_core.generator.index import letters
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.schedules.written import (
    Blocks,
    Context,
    Written,
    blocks_of,
    can_be_row,
    store_at,
    tiles_of,
)
from kernel_core.generator.values import Unfusable

BLOCK = 1024
_OF_ROW = re.compile(r"\s*\w+ = row( // \w+)?( % \w+)?")


def write(context: Context) -> Written:
    """Outputs of one shape; their inputs are read at the index of the element.

    Where that index would be divided, blocks lie along rows, with which the fewest lines divide. The number
    of the row is divided once a program.
    """
    value = context.region.outputs[0]
    if value.rank == 0:
        kernel = context.kernel([])
        for output in context.region.outputs:
            store_at(kernel, output, ([], [], ()))
        return context.finish(kernel, {}, "(1,)", "One program computes the only element.")
    if context.is_channels_last:
        tiles = _stored(context, tiles_of(context, value, letters(value.rank)))
        plan = "Each program computes a tile of channels and places."
        return context.finish(tiles.kernel, tiles.constants, tiles.grid, plan, warps=tiles.warps)
    blocks, plan = _blocks(context, 0), "Each program computes one block of elements."
    if _num_divisions(blocks.kernel):
        along = []
        for axis in (axis for axis in range(value.rank) if can_be_row(value, axis, BLOCK)):
            with suppress(Unfusable):
                along.append(_blocks(context, axis))
        if along:
            blocks = min(along, key=lambda tried: _num_divisions(tried.kernel))
            plan = "Each program computes one block of a row."
    return context.finish(blocks.kernel, blocks.constants, blocks.grid, plan)


def _blocks(context: Context, axis: int) -> Blocks:
    value = context.region.outputs[0]
    return _stored(context, blocks_of(context, value, letters(value.rank), BLOCK, axis))


def _stored(context: Context, blocks: Blocks) -> Blocks:
    for output in context.region.outputs:
        store_at(blocks.kernel, output, (blocks.coords, blocks.coords, context.region.outputs[0].shape))
    return blocks


def _num_divisions(kernel: Kernel) -> int:
    """Lines that divide an index that differs between elements."""
    return sum(bool(re.search("//|%", line)) and not _OF_ROW.fullmatch(line) for line in kernel.raw_lines())
