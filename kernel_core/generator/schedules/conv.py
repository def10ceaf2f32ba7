"""Convolutions: a matrix product for each offset of the weight, or a direct sum for few channels a group.

The product's rows are output positions, its columns output channels of one group, and K walks over the input
channels; over channels and offsets together where there are few channels. No patch is written to memory. The
weight is read from a copy with output channels last: neighbouring lanes read neighbouring numbers.
"""

from __future__ import annotations

from kernel_core.generator.index import Group, Index, Text, flatten, image_letters, is_zero, join
from kernel_core.generator.ir import Value, make, stored
from kernel_core.generator.places import ATOM, PRODUCT, SUM
from kernel_core.generator.schedules.direct import write_direct
from kernel_core.generator.schedules.gemm import Tile
from kernel_core.generator.schedules.geometry import (
    first_position,
    name_geometry,
    numbers_of,
    position,
    taps_of,
)
from kernel_core.generator.schedules.written import Context, Written
from kernel_core.generator.sizes import Size, is_one, product

FEW = 16
"""Output channels of a group below which tiles of a product would be empty."""
SHALLOW = 8
"""Input channels of a group below which a step of K for each offset would be almost empty."""


def tiled(value: Value) -> Value:
    """A convolution that reads its tensors from memory, its weight with output channels last."""
    x, weight = value.inputs
    out = value.shape[1] // value.groups
    is_thin = is_one(out) or any(map(is_one, value.shape[2:]))
    is_thin = is_thin or (int(value.channels) == 1 and not _is_shallow(value))
    if is_thin or (int(value.groups) > 1 and int(out) < FEW):
        return value
    if not all(map(is_one, value.kernel)):
        ins, outs = (0, 1) if value.transposed else (1, 0)
        taps = range(2, weight.rank)
        order = (ins, *taps, outs) if _is_shallow(value) else (*taps, ins, outs)
        weight = make(
            "permute", (weight,), [weight.shape[axis] for axis in order], weight.dtype, order=order,
            origin=(value.origin[0], "packed_weight"),
        )  # fmt: skip
    return make("conv", (x, weight), value.shape, value.dtype, **{**value.attributes, "is_tiled": True})


def _is_shallow(value: Value) -> bool:
    """True where K walks over channels and offsets together; a transposed one divides at each offset."""
    return int(value.channels) < SHALLOW and not value.transposed and not all(map(is_one, value.kernel))


def write(context: Context) -> Written:
    """A convolution of any rank, with groups, or a transposed one."""
    anchor = context.region.anchor
    x, weight = anchor.inputs
    groups, own_in = anchor.groups, anchor.channels
    out = anchor.shape[1] // groups
    if not anchor.is_tiled:
        return write_direct(context)
    names = image_letters(anchor.rank)
    taps = taps_of(anchor)
    many = int(groups) > 1 or isinstance(groups, Size)
    rows = (anchor.shape[0], *anchor.shape[2:]), (names[0], *(f"O{letter}" for letter in names[2:]))
    batch = ((groups,) if many else (), ("G",))
    is_shallow = _is_shallow(anchor)
    walked = [tap for tap in taps if not is_one(tap.sizes[0])] if is_shallow else []
    k = (own_in, *(tap.sizes[0] for tap in walked)), ("C", *(tap.letters[0] for tap in walked))
    tile = Tile(context, batch, rows, (out, "OC"), k, [] if is_shallow else taps)
    kernel, z = tile.kernel, tile.batch.digit(0) if many else 0
    kernel.name_axes(x.shape, names)
    name_geometry(kernel, anchor)
    places = [tile.m.digit(1 + axis) for axis in range(len(taps))]
    out_channel = join(z, out, tile.n.digit(0))

    def along(group: Group) -> tuple[Index, list[Index]]:
        """Index of the input channel, and those of the offsets, of an operand."""
        if not is_shallow:
            return group.digit(0), [tap.digit(0) for tap in taps]
        digits = iter(range(1, len(group.sizes)))
        return group.digit(0), [0 if is_one(tap.sizes[0]) else group.digit(next(digits)) for tap in taps]

    def left() -> str:
        channel, offsets = along(tile.k_of_a)
        front: list[Index] = [tile.m.digit(0), join(z, own_in, 0)]
        if is_shallow:
            return _along_offsets(tile, front, places, channel, offsets)
        return _under_offset(tile, front, places, taps)

    def right() -> str:
        channel, offsets = along(tile.k_of_b)
        front, column = (join(z, own_in, channel), tile.n.digit(0)) if anchor.transposed else (
            channel, out_channel,
        )  # fmt: skip
        if all(map(is_one, anchor.kernel)):
            return kernel.at(weight, [*((front, column) if anchor.transposed else (column, front)), *offsets])
        return kernel.at(weight, [front, *offsets, column] if is_shallow else [*offsets, front, column])

    own: list[Index] = [tile.m.digit(0), out_channel, *places]
    plan = "Implicit GEMM: each kernel offset adds a product over the input channels to a tile of outputs."
    if is_shallow:
        plan = "Implicit GEMM: K walks over the input channels and the kernel offsets together."
    return tile.finish(left, right, own, plan, _configs(int(out), int(product(k[0]))))


def _configs(columns: int, depth: int) -> tuple[str, str]:
    """Name and text of two or three tiles, of which few columns and steps of K are empty."""
    width = 32 if columns <= 32 else 64 if columns <= 64 else 128
    step = 16 if depth < 64 and 0 < depth % 32 <= 16 else 32
    name, least = f"CONFIGS_{width}_{step}", min(width, 64)
    tiles = [(64, least, 4), (128, least, 4), *([(128, 128, 8)] if width == 128 else [])]
    lines = "".join(
        f'    triton.Config({{"BLOCK_M": {m}, "BLOCK_N": {n}, "BLOCK_K": {step}}}, '
        f"num_warps={warps}, num_stages=3),\n"
        for m, n, warps in tiles
    )
    return name, f"{name} = [\n{lines}]\n"


def _under_offset(tile: Tile, front: list[Index], places: list[Index], taps: list[Group]) -> str:
    """A tile of the input under one offset of the weight, 0 beyond its edges.

    Places are sums of one for each row and one for each channel: a tile needs one addition an element.
    """
    kernel, anchor, view = tile.kernel, tile.context.region.anchor, tile.m.view
    x, letters, coords, bounds = anchor.inputs[0], image_letters(anchor.rank)[2:], list(front), list[str]()
    depth, groups = len(tile.taps), frozenset([tile.m, *tile.taps])
    for axis, (place, tap, letter) in enumerate(zip(places, taps, letters, strict=True)):
        name, conditions = position(kernel, anchor, axis, place, tap, letter, view)
        coords.append(Text(name, groups, ATOM))
        bounds += conditions
    at = kernel.index(flatten(coords, x.shape))[0].replace(view, "")
    at = kernel.remember(("place", id(anchor)), depth, lambda: kernel.named("place", at, depth))
    area = kernel.size(product(x.shape[2:]), "".join(letters))
    across = f"({tile.k_of_a.name}.to(tl.int64) * {area}){tile.k_of_a.view}"
    offset = Text(f"{at}{view} + {across}", groups | {tile.k_of_a}, SUM)
    if not bounds:
        return kernel.load(stored(x), offset)
    bounds.insert(0, tile.m.mask.replace(view, ""))
    text = " & ".join(f"({bound})" for bound in bounds)
    inside = (
        kernel.remember(("inside", id(anchor)), depth, lambda: kernel.named("inside", text, depth)) + view
    )
    kernel.joined_mask((tile.m.mask, inside), inside)
    with kernel.guarded(Text(inside, groups)):
        return kernel.load(stored(x), offset)


def _along_offsets(
    tile: Tile, front: list[Index], places: list[Index], channel: Index, offsets: list[Index]
) -> str:
    """A tile of the input under the channels and offsets of a step of K, 0 beyond its edges."""
    kernel, anchor = tile.kernel, tile.context.region.anchor
    view, across, groups = tile.m.view, tile.k_of_a.view, frozenset([tile.m, tile.k_of_a])
    x, letters, starts, steps = anchor.inputs[0], image_letters(anchor.rank)[2:], list(front), [0, channel]
    conditions = list[Text]()
    for axis, (place, offset, letter) in enumerate(zip(places, offsets, letters, strict=True)):
        _, padding, dilation = numbers_of(kernel, anchor, axis, letter)
        first, size = (
            first_position(kernel, anchor, axis, place, letter, view),
            kernel.size(x.shape[2 + axis], letter),
        )
        step = kernel.index(offset)[0].replace(across, "")
        step = step if dilation == "1" or is_zero(offset) else f"{step} * {dilation}"
        starts.append(Text(first, groups, ATOM))
        steps.append(0 if is_zero(offset) else Text(step, groups, PRODUCT))
        if padding != "0":
            spot = f"{first}{view}" if is_zero(offset) else f"{first}{view} + ({step}){across}"
            spot = kernel.named(f"i{letter.lower()}", spot, tile.k_of_a.depth)
            conditions += [Text(f"{spot} >= 0", groups), Text(f"{spot} < {size}", groups)]
    at, ahead = (
        kernel.index(flatten(coords, x.shape))[0].replace(its, "")
        for coords, its in ((starts, view), (steps, across))
    )
    at = kernel.remember(("place", id(anchor)), 0, lambda: kernel.named("place", at, 0))
    with kernel.guarded(*conditions):
        return kernel.load(stored(x), Text(f"{at}{view} + ({ahead}){across}", groups, SUM))
