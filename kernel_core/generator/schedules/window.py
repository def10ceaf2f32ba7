"""Pooling: a program owns a block of outputs and walks over the places of their windows."""

from __future__ import annotations

from kernel_core.generator.index import Group, Index, Text, flatten, groups_of, image_letters, letters
from kernel_core.generator.ir import Value
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.schedules.rows import accumulator, filled, identity
from kernel_core.generator.schedules.written import Context, Written, blocks_of, store_outputs, tiles_of
from kernel_core.generator.sizes import is_named, is_one

BLOCK = 256


def write(context: Context) -> Written:
    """Write a kernel for pooling of any rank: maximum, argmax or sum of each window."""
    anchor = context.region.anchor
    lead = anchor.rank - len(anchor.kernel)
    axes = image_letters(len(anchor.kernel) + 2)[2:]
    names = (*letters(anchor.rank)[:lead], *(f"O{axis}" for axis in axes))
    if context.is_channels_last:
        blocks = tiles_of(context, anchor, names)
    else:
        blocks = blocks_of(context, anchor, names, BLOCK, lead)
    kernel, coords = blocks.kernel, blocks.coords
    x = anchor.inputs[0]
    neutral = identity(anchor.kind, x.dtype)
    kernel.line(f"acc = {filled(blocks.tile, neutral, accumulator(x.dtype))}")
    if anchor.kind == "argmax":
        kernel.line(f"{kernel.fresh('place')} = tl.zeros({blocks.tile}, dtype=tl.int64)")
    loops = [
        Group(f"k{axis.lower()}", (size,), (f"K{axis}",))
        for axis, size in zip(axes, anchor.kernel, strict=True)
    ]
    kernel.name_sizes([*blocks.groups, *loops])
    _walk(kernel, loops, 0, anchor, coords, neutral)
    kernel.done[id(anchor)] = ("place" if anchor.kind == "argmax" else "acc", frozenset(), tuple(coords))
    store_outputs(kernel, context.region, anchor, coords)
    plan = "Each program computes one block of outputs and loops over the window."
    return context.finish(kernel, blocks.constants, blocks.grid, plan, warps=blocks.warps)


def _walk(
    kernel: Kernel, loops: list[Group], level: int, anchor: Value, coords: list[Index], neutral: str
) -> None:
    if level < len(loops) and is_one(loops[level].sizes[0]):
        _walk(kernel, loops, level + 1, anchor, coords, neutral)
        return
    if level < len(loops):
        object.__setattr__(loops[level], "depth", kernel.depth + 1)
        with kernel.loop(f"for {loops[level].name} in range({kernel.size(loops[level].sizes[0])}):"):
            _walk(kernel, loops, level + 1, anchor, coords, neutral)
        return
    x, conditions = anchor.inputs[0], list[Text]()
    lead = anchor.rank - len(loops)
    inner = list(coords)
    for axis, loop in enumerate(loops):
        stride, padding, dilation = anchor.stride[axis], anchor.padding[axis], anchor.dilation[axis]
        groups = groups_of(coords[lead + axis]) | {loop}
        at = kernel.index(coords[lead + axis])[0]
        at = at if is_one(stride) else f"{at} * {kernel.size(stride)}"
        step = loop.name if is_one(dilation) else f"{loop.name} * {kernel.size(dilation)}"
        text = at if is_one(loop.sizes[0]) else f"{at} + {step}"
        has_edge = is_named(padding) or int(padding) != 0
        text += f" - {kernel.size(padding)}" * has_edge
        letter = image_letters(len(loops) + 2)[2 + axis]
        size = kernel.size(x.shape[lead + axis], letter)
        text = kernel.named(f"i{letter.lower()}", text, loop.depth)
        if has_edge or anchor.is_partial:
            conditions += [Text(f"{text} >= 0", groups), Text(f"{text} < {size}", groups)]
        inner[lead + axis] = Text(text, groups, 4)
    with kernel.guarded(*conditions):
        name = kernel.at(x, inner, 0.0 if anchor.kind == "sum" else float("-inf"))
    if conditions and not kernel.in_memory(x):
        name = f"tl.where({' & '.join(f'({condition.text})' for condition in conditions)}, {name}, {neutral})"
    if anchor.kind == "argmax":
        flat = kernel.index(flatten(inner[lead:], x.shape[lead:]))[0]
        kernel.line(f"better = {name} > acc")
        kernel.line(f"place = tl.where(better, {flat}, place)")
    kernel.line(f"acc += {name}" if anchor.kind == "sum" else f"acc = tl.maximum(acc, {name})")
