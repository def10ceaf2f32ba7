"""Convolutions with few channels a group, as in depthwise ones: a program sums over the offsets itself."""

from __future__ import annotations

from contextlib import ExitStack

from kernel_core.generator.index import Group, Index, Text, groups_of, image_letters, is_zero, join
from kernel_core.generator.ir import Value
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.places import ATOM
from kernel_core.generator.schedules.geometry import name_geometry, position, taps_of
from kernel_core.generator.schedules.written import Context, Written, blocks_of, store_outputs

BLOCK = 256


def write_direct(context: Context) -> Written:
    """Few channels a group, as in a depthwise convolution: a program sums over the offsets itself."""
    anchor = context.region.anchor
    weight, own_in, out = anchor.inputs[1], anchor.channels, anchor.shape[1] // anchor.groups
    axes = image_letters(anchor.rank)
    names = (*axes[:2], *(f"O{axis}" for axis in axes[2:]))
    blocks = blocks_of(context, anchor, names, BLOCK, 2)
    kernel, coords = blocks.kernel, blocks.coords
    kernel.line("acc = tl.zeros((BLOCK,), dtype=tl.float32)")
    taps = taps_of(anchor)
    channels = Group("ic", (own_in,), ("IC",), depth=1 + max(tap.depth for tap in taps))
    kernel.name_sizes([*blocks.groups, *taps, channels])
    kernel.name_axes(anchor.inputs[0].shape, axes)
    name_geometry(kernel, anchor)
    own = Text(f"{kernel.index(coords[1])[0]} // {kernel.size(out)}", groups_of(coords[1]), 2)
    base: Index = coords[1] if int(out) == 1 else own
    inner: Index = 0 if int(own_in) == 1 else channels.digit(0)
    channel = base if int(own_in) == 1 else join(base, own_in, inner)
    with ExitStack() as loops:
        for loop in (*taps, channels):
            if not is_zero(loop.digit(0)) and not (loop is channels and int(own_in) == 1):
                size = kernel.size(loop.sizes[0], loop.letters[0])
                loops.enter_context(kernel.loop(f"for {loop.name} in range({size}):"))
        x = _loaded(kernel, anchor, [coords[0], channel], list(coords[2:]), taps)
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
    return context.finish(kernel, blocks.constants, blocks.grid, plan)


def _loaded(kernel: Kernel, anchor: Value, front: list[Index], places: list[Index], taps: list[Group]) -> str:
    """The input under an offset of the weight, 0 beyond its edges."""
    x, coords, bounds = anchor.inputs[0], list[Index](front), list[str]()
    letters = image_letters(anchor.rank)[2:]
    groups = frozenset[Group]()
    for axis, (place, tap, letter) in enumerate(zip(places, taps, letters, strict=True)):
        its = groups_of(place) | groups_of(tap.digit(0))
        name, conditions = position(kernel, anchor, axis, place, tap, letter, view="")
        if conditions:
            groups |= its
        bounds += conditions
        coords.append(Text(name, its, ATOM))
    if not bounds:
        return kernel.at(x, coords)
    depth = max((tap.depth for tap in taps), default=0)
    inside = kernel.remember(
        ("inside", id(anchor)),
        depth,
        lambda: kernel.named("inside", " & ".join(f"({b})" for b in bounds), depth),
    )
    with kernel.guarded(Text(inside, groups)):
        loaded = kernel.at(x, coords)
    return loaded if kernel.in_memory(x) else f"tl.where({inside}, {loaded}, 0.0)"
