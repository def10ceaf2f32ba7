"""Convolutions: an implicit matrix product over channels and offsets, or a direct sum for few channels.

The product's rows are output places, its columns output channels of one group, and K walks over the channels
and offsets of the weight. No patch is written to memory.
"""

from __future__ import annotations

from kernel_core.generator.index import Group, Index, Text, groups_of, image_letters, is_zero, join
from kernel_core.generator.ir import Value
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.schedules.gemm import Tile
from kernel_core.generator.schedules.written import Context, Written, store_outputs
from kernel_core.generator.sizes import Size, product

FEW = 16
"""Output channels of a group below which tiles of a product would be empty."""
BLOCK = 256


def write(context: Context) -> Written:
    """A convolution of any rank, with groups, or a transposed one."""
    anchor = context.region.anchor
    x, weight = anchor.inputs
    groups = anchor.groups
    own_in = x.shape[1] // groups if anchor.transposed else weight.shape[1]
    out = anchor.shape[1] // groups
    if int(groups) > 1 and int(out) < FEW:
        return _direct(context, out, own_in)
    space, offsets = tuple(anchor.shape[2:]), tuple(weight.shape[2:])
    names = image_letters(anchor.rank)
    kernel_names = tuple(f"K{letter}" for letter in names[2:])
    many = int(groups) > 1 or isinstance(groups, Size)
    tile = Tile(
        context,
        (groups,) if many else (),
        ("G",),
        (anchor.shape[0], *space),
        (names[0], *(f"O{letter}" for letter in names[2:])),
        (out,),
        ("OC",),
        (own_in, *offsets),
        ("C", *kernel_names),
    )
    tile.kernel.name_axes(x.shape, names)
    kernel, z = tile.kernel, tile.batch.digit(0) if many else 0
    places = [tile.m.digit(1 + axis) for axis in range(len(space))]
    out_channel = join(z, out, tile.n.digit(0))

    def left() -> str:
        spread = [tile.k_of_a.digit(1 + axis) for axis in range(len(space))]
        channel = join(z, own_in, tile.k_of_a.digit(0))
        return _loaded(kernel, anchor, [tile.m.digit(0), channel], places, spread)

    def right() -> str:
        k = tile.k_of_b
        offset = [k.digit(1 + axis) for axis in range(len(space))]
        front = (
            [join(z, own_in, k.digit(0)), tile.n.digit(0)] if anchor.transposed else [out_channel, k.digit(0)]
        )
        return kernel.at(weight, [*front, *offset])

    own: list[Index] = [tile.m.digit(0), out_channel, *places]
    plan = (
        "Implicit GEMM: rows are output positions, columns are output channels, "
        "K covers input channels and kernel offsets."
    )
    return tile.finish(left, right, own, plan)


def _loaded(
    kernel: Kernel, anchor: Value, front: list[Index], places: list[Index], spread: list[Index]
) -> str:
    """The input under an offset of the weight, 0 beyond its edges."""
    x, conditions, coords = anchor.inputs[0], list[Text](), list[Index](front)
    for axis, (place, offset) in enumerate(zip(places, spread, strict=True)):
        stride, padding, dilation = anchor.stride[axis], anchor.padding[axis], anchor.dilation[axis]
        groups = groups_of(place) | groups_of(offset)
        at, step = kernel.index(place)[0], kernel.index(offset)[0]
        size = kernel.size(x.shape[2 + axis], image_letters(anchor.rank)[2 + axis])
        step = step if _is(dilation, 1) else f"{step} * {kernel.size(dilation)}"
        if is_zero(offset) and _is(stride, 1) and _is(padding, 0):
            coords.append(place)
            continue
        if not anchor.transposed:
            at = at if _is(stride, 1) else f"{at} * {kernel.size(stride)}"
            text = f"{at} + {step}" if _is(padding, 0) else f"{at} + {step} - {kernel.size(padding)}"
            if not _is(padding, 0):
                conditions += [Text(f"{text} >= 0", groups), Text(f"{text} < {size}", groups)]
            coords.append(Text(text, groups, 2))
            continue
        text = f"{at} - {step}" if _is(padding, 0) else f"{at} + {kernel.size(padding)} - {step}"
        conditions.append(Text(f"{text} >= 0", groups))
        if not _is(stride, 1):
            by = kernel.size(stride)
            conditions.append(Text(f"({text}) % {by} == 0", groups))
            text = f"({text}) // {by}"
        conditions.append(Text(f"{text} < {size}", groups))
        coords.append(Text(text, groups, 2))
    with kernel.guarded(*conditions):
        loaded = kernel.at(x, coords)
    if conditions and not kernel.in_memory(x):
        inside = " & ".join(f"({condition.text})" for condition in conditions)
        return f"tl.where({inside}, {loaded}, 0.0)"
    return loaded


def _is(number: int, wanted: int) -> bool:
    return not isinstance(number, Size) and number == wanted


def _direct(context: Context, out: int, own_in: int) -> Written:
    """Few channels a group, as in a depthwise convolution: a program sums over the offsets itself."""
    anchor = context.region.anchor
    weight = anchor.inputs[1]
    axes = image_letters(anchor.rank)
    group = Group("i", anchor.shape, (*axes[:2], *(f"O{axis}" for axis in axes[2:])), mask="mask")
    kernel = context.kernel([group])
    count = kernel.total(product(anchor.shape), "n_elements", is_flat=True)
    kernel.line("i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
    kernel.line(f"mask = i < {count}")
    kernel.fresh("acc")
    kernel.line("acc = tl.zeros((BLOCK,), dtype=tl.float32)")
    coords: list[Index] = [group.digit(axis) for axis in range(anchor.rank)]
    channel = kernel.index(coords[1])[0]
    names = [f"k{axis.lower()}" for axis in axes[2:]]
    sizes = [own_in, *weight.shape[2:]]
    loops = [
        Group(name, (size,), (name.upper(),), depth=1)
        for name, size in zip(["ic", *names], sizes, strict=True)
    ]
    kernel.name_sizes([group, *loops])
    kernel.name_axes(anchor.inputs[0].shape, axes)
    group_index = channel if _is(out, 1) or int(out) == 1 else f"{channel} // {kernel.size(out)}"
    _sum_over(kernel, loops, 0, anchor, weight, coords, group_index, out, own_in)
    kernel.done[id(anchor)] = ("acc", frozenset(), tuple(coords))
    store_outputs(kernel, context.region, anchor, coords)
    plan = "Each program computes one block of outputs and sums over the kernel offsets."
    return context.finish(kernel, {"BLOCK": str(BLOCK)}, f"(triton.cdiv({count}, {BLOCK}),)", plan)


def _sum_over(
    kernel: Kernel,
    loops: list[Group],
    level: int,
    anchor: Value,
    weight: Value,
    coords: list[Index],
    group_index: str,
    out: int,
    own_in: int,
) -> None:
    if level < len(loops):
        if level == 0 and int(own_in) == 1:
            _sum_over(kernel, loops, 1, anchor, weight, coords, group_index, out, own_in)
            return
        size = kernel.size(loops[level].sizes[0])
        object.__setattr__(loops[level], "depth", kernel.depth + 1)
        with kernel.loop(f"for {loops[level].name} in range({size}):"):
            _sum_over(kernel, loops, level + 1, anchor, weight, coords, group_index, out, own_in)
        return
    groups = groups_of(coords[1])
    inner: Index = 0 if int(own_in) == 1 else loops[0].digit(0)
    offsets: list[Index] = [loop.digit(0) for loop in loops[1:]]
    base: Index = Text(group_index, groups, 2)
    channel = join(base, own_in, inner) if int(own_in) != 1 else base
    x = _loaded(kernel, anchor, [coords[0], channel], list(coords[2:]), offsets)
    if anchor.transposed:
        name = kernel.index(coords[1])[0]
        column: Index = 0 if int(out) == 1 else Text(f"{name} % {kernel.size(out)}", groups, 2)
        w = kernel.at(weight, [channel, column, *offsets])
    else:
        w = kernel.at(weight, [coords[1], inner, *offsets])
    kernel.line(f"acc += {x} * {w}")
