"""Scatter schedule: a program stores or adds a block of elements at the places that indices name."""

from __future__ import annotations

from kernel_core.generator.index import Index, Text, flatten, groups_of, letters
from kernel_core.generator.schedules.written import Context, Written, blocks_of

BLOCK = 1024
_ATOMIC = {"sum": "atomic_add", "amax": "atomic_max", "amin": "atomic_min"}


def write(context: Context) -> Written:
    """Writes of all elements of the source into a copy of the tensor; sums and extremes are atomic."""
    anchor = context.region.anchor
    x, source, *indices = anchor.inputs
    blocks = blocks_of(context, source, letters(source.rank), BLOCK)
    kernel, coords = blocks.kernel, blocks.coords
    names = [kernel.at(index, coords) for index in indices]
    place: list[Index] = []
    for how, number in anchor.axes:
        own = groups_of(flatten(coords, source.shape))
        place.append(Text(names[number], own, 4) if how == "index" else coords[number])
    value = kernel.at(source, coords)
    flat = flatten(place, x.shape)
    offset, mask = kernel.offset(flat, "out"), kernel.mask([flat], "out")
    if anchor.bounded:
        axis = next(axis for axis, (how, _) in enumerate(anchor.axes) if how == "index")
        mask = f"{mask} & (" if mask else "("
        mask += f"{names[0]} < {kernel.size(x.shape[axis])})"
    pointer = kernel.output(anchor)
    write = _ATOMIC.get(anchor.kind, "store")
    masked = f", mask={mask}" if mask else ""
    kernel.line(f"tl.{write}({pointer} + {offset}, {value}{masked})")
    does = "stores it" if anchor.kind == "store" else "adds it atomically" if anchor.kind == "sum" else (
        "keeps the extreme atomically"
    )  # fmt: skip
    plan = f"Each program loads one block of elements and {does} at the indexed positions."
    written = context.finish(kernel, {"BLOCK": str(BLOCK)}, blocks.grid, plan)
    written.starts_from = x
    return written
