"""Convolutions: a matrix product for each offset of the weight, or a direct sum for few channels a group.

The product's rows are output positions, its columns output channels of one group, and K walks over the input
channels. No patch is written to memory.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import accumulate

from kernel_core.generator.index import Group, Index, Text, groups_of, image_letters, is_zero, join
from kernel_core.generator.ir import Value
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.places import ATOM
from kernel_core.generator.schedules.gemm import Tile
from kernel_core.generator.schedules.written import Context, Written, block_of, store_outputs
from kernel_core.generator.sizes import Size, is_one

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
    names = image_letters(anchor.rank)
    taps = _taps(anchor)
    many = int(groups) > 1 or isinstance(groups, Size)
    rows = (anchor.shape[0], *anchor.shape[2:]), (names[0], *(f"O{letter}" for letter in names[2:]))
    tile = Tile(context, ((groups,) if many else (), ("G",)), rows, (out, "OC"), (own_in, "C"), taps)
    tile.kernel.name_axes(x.shape, names)
    _name_geometry(tile.kernel, anchor)
    kernel, z = tile.kernel, tile.batch.digit(0) if many else 0
    places = [tile.m.digit(1 + axis) for axis in range(len(taps))]
    offsets = [tap.digit(0) for tap in taps]
    out_channel = join(z, out, tile.n.digit(0))

    def left() -> str:
        channel = join(z, own_in, tile.k_of_a.digit(0))
        return _loaded(kernel, anchor, [tile.m.digit(0), channel], places, taps, tile.m.view)

    def right() -> str:
        channel = tile.k_of_b.digit(0)
        front = [join(z, own_in, channel), tile.n.digit(0)] if anchor.transposed else [out_channel, channel]
        return kernel.at(weight, [*front, *offsets])

    own: list[Index] = [tile.m.digit(0), out_channel, *places]
    plan = "Implicit GEMM: each kernel offset adds a product over the input channels to a tile of outputs."
    return tile.finish(left, right, own, plan)


def _taps(anchor: Value) -> list[Group]:
    """Loops over the offsets of the weight, one an axis of space."""
    letters = image_letters(anchor.rank)[2:]
    sizes = anchor.inputs[1].shape[2:]
    depths = accumulate(0 if is_one(size) else 1 for size in sizes)
    return [
        Group(f"k{letter.lower()}", (size,), (f"K{letter}",), depth=depth)
        for letter, size, depth in zip(letters, sizes, depths, strict=True)
    ]


def _name_geometry(kernel: Kernel, anchor: Value) -> None:
    """Make arguments of all sizes of space, in an order that every convolution has."""
    letters = image_letters(anchor.rank)[2:]
    x, weight = anchor.inputs
    for kind, sizes in (("", x.shape[2:]), ("O", anchor.shape[2:]), ("K", weight.shape[2:])):
        for letter, size in zip(letters, sizes, strict=True):
            kernel.size(size, f"{kind}{letter}")
    for kind, numbers in (("S", anchor.stride), ("P", anchor.padding), ("D", anchor.dilation)):
        for letter, number in zip(letters, numbers, strict=True):
            kernel.size(number, f"{kind}{letter}")


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
    stride, padding, dilation = (
        kernel.size(number[axis], f"{kind}{letter}")
        for kind, number in (("S", anchor.stride), ("P", anchor.padding), ("D", anchor.dilation))
    )
    size = kernel.size(anchor.inputs[0].shape[2 + axis], letter)
    at = kernel.index(place)[0].removesuffix(view)
    step = "" if is_zero(tap.digit(0)) else tap.name + ("" if dilation == "1" else f" * {dilation}")
    pad = "" if padding == "0" else padding

    def line(name: str, text: str) -> str:
        return kernel.remember((name, id(anchor)), tap.depth, lambda: kernel.named(name, text, tap.depth))

    if not anchor.transposed:
        text = at if stride == "1" else f"{at} * {stride}"
        text += f" + {step}" * bool(step) + f" - {pad}" * bool(pad)
        name = line(f"i{letter.lower()}", text)
        return name, [f"{name} >= 0", f"{name} < {size}"] if pad else []
    text = at + f" + {pad}" * bool(pad) + f" - {step}" * bool(step)
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
