"""Scatter schedule: a program stores or adds a block of elements at the places that indices name."""

from __future__ import annotations

from kernel_core.generator.index import Group, Index, Text, flatten, groups_of, letters
from kernel_core.generator.schedules.written import Context, Written
from kernel_core.generator.sizes import bind, host, product

BLOCK = 1024
_ATOMIC = {"sum": "atomic_add", "amax": "atomic_max", "amin": "atomic_min"}


def write(context: Context) -> Written:
    """Writes of all elements of the source into a copy of the tensor; sums and extremes are atomic."""
    anchor = context.region.anchor
    x, source, *indices = anchor.inputs
    group = Group("i", source.shape, letters(source.rank), mask="mask")
    kernel = context.kernel([group])
    total = bind(product(source.shape), "count")
    kernel.line("i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
    kernel.line(f"mask = i < {kernel.size(total, 'count')}")
    coords: list[Index] = [group.digit(axis) for axis in range(source.rank)]
    names = [kernel.at(index, coords) for index in indices]
    place: list[Index] = []
    for how, number in anchor.axes:
        own = groups_of(flatten(coords, source.shape))
        place.append(Text(names[number], own) if how == "index" else coords[number])
    value = kernel.at(source, coords)
    flat = flatten(place, x.shape)
    offset, mask = kernel.index(flat)[0], kernel.mask([flat])
    if anchor.bounded:
        axis = next(axis for axis, (how, _) in enumerate(anchor.axes) if how == "index")
        mask = f"{mask} & (" if mask else "("
        mask += f"{names[0]} < {kernel.size(x.shape[axis])})"
    pointer = kernel.fresh("out_ptr")
    kernel.pointers[pointer] = anchor
    write = _ATOMIC.get(anchor.kind, "store")
    masked = f", mask={mask}" if mask else ""
    kernel.line(f"tl.{write}({pointer} + {offset}, {value}{masked})")
    grid = f"(triton.cdiv({host(total)}, {BLOCK}),)"
    does = "stores them" if anchor.kind == "store" else "adds them atomically" if anchor.kind == "sum" else (
        "keeps the extreme atomically"
    )  # fmt: skip
    plan = f"A program takes a block of elements and {does} at the places that the indices name."
    written = context.finish(kernel, {"BLOCK": str(BLOCK)}, grid, plan)
    written.starts_from = x
    return written
