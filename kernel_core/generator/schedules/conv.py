"""Convolutions: a matrix product for each offset of the weight, or a direct sum for few channels a group.

The product's rows are output positions, its columns output channels of one group, and K walks over the input
channels; over channels and offsets together where there are few channels. No patch is written to memory. The
weight is read from a copy with output channels last: neighbouring lanes read neighbouring numbers.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import accumulate

from kernel_core.generator.index import (
    Group,
    Index,
    Text,
    flatten,
    groups_of,
    image_letters,
    is_zero,
    join,
)
from kernel_core.generator.ir import Value, make, stored
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.places import ATOM, PRODUCT, SUM
from kernel_core.generator.schedules.gemm import Tile
from kernel_core.generator.schedules.written import Context, Written, block_of, store_outputs
from kernel_core.generator.sizes import Size, is_one, product

FEW = 16
"""Output channels of a group below which tiles of a product would be empty."""
SHALLOW = 8
"""Input channels of a group below which a step of K for each offset would be almost empty."""
BLOCK = 256


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
        return _direct(context, out, own_in)
    names = image_letters(anchor.rank)
    taps = _taps(anchor)
    many = int(groups) > 1 or isinstance(groups, Size)
    rows = (anchor.shape[0], *anchor.shape[2:]), (names[0], *(f"O{letter}" for letter in names[2:]))
    batch = ((groups,) if many else (), ("G",))
    is_shallow = _is_shallow(anchor)
    k = (own_in,), ("C",)
    if is_shallow:
        walked = [tap for tap in taps if not is_one(tap.sizes[0])]
        k = (own_in, *(tap.sizes[0] for tap in walked)), ("C", *(tap.letters[0] for tap in walked))
    tile = Tile(context, batch, rows, (out, "OC"), k, [] if is_shallow else taps)
    kernel, z = tile.kernel, tile.batch.digit(0) if many else 0
    kernel.name_axes(x.shape, names)
    kernel.name_axes([product(x.shape[1:3])], [f"C{names[2]}"])
    _name_geometry(kernel, anchor)
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
    lines = [
        f'    triton.Config({{"BLOCK_M": {m}, "BLOCK_N": {n}, "BLOCK_K": {step}}}, num_warps={warps}, num_stages=3),\n'
        for m, n, warps in tiles
    ]
    return name, f"{name} = [\n{''.join(lines)}]\n"


def _taps(anchor: Value) -> list[Group]:
    """Loops over the offsets of the weight, one an axis of space."""
    letters = image_letters(anchor.rank)[2:]
    sizes = anchor.kernel
    depths = accumulate(0 if is_one(size) else 1 for size in sizes)
    return [
        Group(f"k{letter.lower()}", (size,), (f"K{letter}",), depth=depth)
        for letter, size, depth in zip(letters, sizes, depths, strict=True)
    ]


def _name_geometry(kernel: Kernel, anchor: Value) -> None:
    """Make arguments of all sizes of space, in an order that every convolution has."""
    letters = image_letters(anchor.rank)[2:]
    x = anchor.inputs[0]
    for kind, sizes in (("", x.shape[2:]), ("O", anchor.shape[2:]), ("K", anchor.kernel)):
        for letter, size in zip(letters, sizes, strict=True):
            kernel.size(size, f"{kind}{letter}")
    for kind, numbers in (("S", anchor.stride), ("P", anchor.padding), ("D", anchor.dilation)):
        for letter, number in zip(letters, numbers, strict=True):
            kernel.size(number, f"{kind}{letter}")


def _under_offset(tile: Tile, front: list[Index], places: list[Index], taps: list[Group]) -> str:
    """A tile of the input under one offset of the weight, 0 beyond its edges.

    Places are sums of one for each row and one for each channel: a tile needs one addition an element.
    """
    kernel, anchor, view = tile.kernel, tile.context.region.anchor, tile.m.view
    x, letters, coords, bounds = anchor.inputs[0], image_letters(anchor.rank)[2:], list(front), list[str]()
    depth, groups = len(tile.taps), frozenset([tile.m, *tile.taps])
    for axis, (place, tap, letter) in enumerate(zip(places, taps, letters, strict=True)):
        name, conditions = _position(kernel, anchor, axis, place, tap, letter, view)
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
        _, padding, dilation = _numbers(kernel, anchor, axis, letter)
        first, size = (
            _first(kernel, anchor, axis, place, letter, view),
            kernel.size(x.shape[2 + axis], letter),
        )
        step = kernel.index(offset)[0].replace(across, "")
        step = step if dilation == "1" or is_zero(offset) else f"{step} * {dilation}"
        starts.append(Text(first, groups, ATOM))
        steps.append(0 if is_zero(offset) else Text(step, groups, PRODUCT))
        if padding != "0":
            position = f"{first}{view}" if is_zero(offset) else f"{first}{view} + ({step}){across}"
            position = kernel.named(f"i{letter.lower()}", position, tile.k_of_a.depth)
            conditions += [Text(f"{position} >= 0", groups), Text(f"{position} < {size}", groups)]
    at, ahead = (
        kernel.index(flatten(coords, x.shape))[0].replace(its, "")
        for coords, its in ((starts, view), (steps, across))
    )
    at = kernel.remember(("place", id(anchor)), 0, lambda: kernel.named("place", at, 0))
    with kernel.guarded(*conditions):
        return kernel.load(stored(x), Text(f"{at}{view} + ({ahead}){across}", groups, SUM))


def _numbers(kernel: Kernel, anchor: Value, axis: int, letter: str) -> tuple[str, str, str]:
    """Arguments of stride, padding and dilation along one axis of space."""
    stride, padding, dilation = (
        kernel.size(numbers[axis], f"{kind}{letter}")
        for kind, numbers in (("S", anchor.stride), ("P", anchor.padding), ("D", anchor.dilation))
    )
    return stride, padding, dilation


def _first(kernel: Kernel, anchor: Value, axis: int, place: Index, letter: str, view: str) -> str:
    """Name of the position under the weight's first offset; an axis has less than 2**31 of them."""
    stride, padding, _ = _numbers(kernel, anchor, axis, letter)
    at = kernel.index(place)[0].removesuffix(view)
    if anchor.transposed:
        text = at if padding == "0" else f"{at} + {padding}"
    else:
        text = (at if stride == "1" else f"{at} * {stride}") + ("" if padding == "0" else f" - {padding}")
    if is_zero(place):
        return f"({text})"
    name = f"{letter.lower()}0"
    return kernel.remember((name, id(anchor)), 0, lambda: kernel.named(name, f"({text}).to(tl.int32)", 0))


def _loaded(
    kernel: Kernel, anchor: Value, front: list[Index], places: list[Index], taps: list[Group], view: str
) -> str:
    """The input under an offset of the weight, 0 beyond its edges."""
    x, coords, bounds = anchor.inputs[0], list[Index](front), list[str]()
    letters = image_letters(anchor.rank)[2:]
    groups = frozenset[Group]()
    for axis, (place, tap, letter) in enumerate(zip(places, taps, letters, strict=True)):
        its = groups_of(place) | groups_of(tap.digit(0))
        name, conditions = _position(kernel, anchor, axis, place, tap, letter, view)
        if conditions:
            groups |= its
        bounds += conditions
        coords.append(Text(f"{name}{view}", its, ATOM))
    if not bounds:
        return kernel.at(x, coords)
    depth = max((tap.depth for tap in taps), default=0)
    inside = kernel.remember(
        ("inside", id(anchor)),
        depth,
        lambda: kernel.named("inside", " & ".join(f"({b})" for b in bounds), depth),
    )
    with kernel.guarded(Text(f"{inside}{view}", groups)):
        loaded = kernel.at(x, coords)
    return loaded if kernel.in_memory(x) else f"tl.where({inside}{view}, {loaded}, 0.0)"


def _position(
    kernel: Kernel, anchor: Value, axis: int, place: Index, tap: Group, letter: str, view: str
) -> tuple[str, list[str]]:
    """Name of the input's position along one axis, and the conditions under which it is inside."""
    stride, padding, dilation = _numbers(kernel, anchor, axis, letter)
    size = kernel.size(anchor.inputs[0].shape[2 + axis], letter)
    first = _first(kernel, anchor, axis, place, letter, view)
    step = "" if is_zero(tap.digit(0)) else tap.name + ("" if dilation == "1" else f" * {dilation}")

    def line(name: str, text: str) -> str:
        return kernel.remember((name, id(anchor)), tap.depth, lambda: kernel.named(name, text, tap.depth))

    if not anchor.transposed:
        name = line(f"i{letter.lower()}", f"{first} + {step}") if step else first
        return name, [f"{name} >= 0", f"{name} < {size}"] if padding != "0" else []
    text = f"{first} - {step}" if step else first
    if stride == "1":
        name = line(f"i{letter.lower()}", text)
        return name, [f"{name} >= 0", f"{name} < {size}"]
    full = line(f"t{letter.lower()}", text)
    name = line(f"i{letter.lower()}", f"{full} // {stride}")
    return name, [f"{full} >= 0", f"{full} % {stride} == 0", f"{name} < {size}"]


def _direct(context: Context, out: int, own_in: int) -> Written:
    """Few channels a group, as in a depthwise convolution: a program sums over the offsets itself."""
    anchor = context.region.anchor
    weight = anchor.inputs[1]
    axes = image_letters(anchor.rank)
    names = (*axes[:2], *(f"O{axis}" for axis in axes[2:]))
    kernel, group, coords, count = block_of(context, anchor, names)
    kernel.line("acc = tl.zeros((BLOCK,), dtype=tl.float32)")
    taps = _taps(anchor)
    channels = Group("ic", (own_in,), ("IC",), depth=1 + max(tap.depth for tap in taps))
    kernel.name_sizes([group, *taps, channels])
    kernel.name_axes(anchor.inputs[0].shape, axes)
    _name_geometry(kernel, anchor)
    own = Text(f"{kernel.index(coords[1])[0]} // {kernel.size(out)}", groups_of(coords[1]), 2)
    base: Index = coords[1] if int(out) == 1 else own
    inner: Index = 0 if int(own_in) == 1 else channels.digit(0)
    channel = base if int(own_in) == 1 else join(base, own_in, inner)
    with ExitStack() as loops:
        for loop in (*taps, channels):
            if not is_zero(loop.digit(0)) and not (loop is channels and int(own_in) == 1):
                size = kernel.size(loop.sizes[0], loop.letters[0])
                loops.enter_context(kernel.loop(f"for {loop.name} in range({size}):"))
        x = _loaded(kernel, anchor, [coords[0], channel], list(coords[2:]), taps, "")
        offsets = [tap.digit(0) for tap in taps]
        if anchor.transposed:
            name = kernel.index(coords[1])[0]
            column: Index = (
                0 if int(out) == 1 else Text(f"{name} % {kernel.size(out)}", groups_of(coords[1]), 2)
            )
            w = kernel.at(weight, [channel, column, *offsets])
        else:
            w = kernel.at(weight, [coords[1], inner, *offsets])
        kernel.line(f"acc += {x} * {w}")
    kernel.done[id(anchor)] = ("acc", frozenset(), tuple(coords))
    store_outputs(kernel, context.region, anchor, coords)
    plan = "Each program computes one block of outputs and sums over the kernel offsets."
    return context.finish(kernel, {"BLOCK": str(BLOCK)}, f"(triton.cdiv({count}, {BLOCK}),)", plan)
