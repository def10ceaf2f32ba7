"""First stage of a long reduction to few results: each program reduces one part, so all processors work."""

from __future__ import annotations

from kernel_core.generator.index import Group, Index, letters
from kernel_core.generator.schedules.rows import MULTIPLY, accumulator, filled, identity
from kernel_core.generator.schedules.written import Context, Written, store_at
from kernel_core.generator.sizes import host, product

BLOCK = 2048


def write(context: Context) -> Written:
    """Partial sums, products or extremes, one a program."""
    anchor = context.region.anchor
    x, dims = anchor.inputs[0], anchor.dims
    names = letters(x.rank)
    axes = [axis for axis in range(x.rank) if axis not in dims]
    kept = Group("row", tuple(x.shape[axis] for axis in axes), tuple(names[axis] for axis in axes))
    walked = Group(
        "cols", tuple(x.shape[axis] for axis in dims), tuple(names[axis] for axis in dims), mask="mask",
        depth=1,
    )  # fmt: skip
    kernel = context.kernel([kept, walked])
    length = kernel.total(product(walked.sizes), "n_cols")
    has_rows = int(product(kept.sizes)) > 1
    kernel.line("part = tl.program_id(0).to(tl.int64)")
    if has_rows:
        kernel.line("row = tl.program_id(1).to(tl.int64)")
    neutral = identity(anchor.kind, x.dtype)
    kernel.line(f"acc = {filled('(BLOCK,)', neutral, accumulator(x.dtype))}")
    rows, along = iter(range(len(axes))), iter(range(len(dims)))
    coords: list[Index] = [
        walked.digit(next(along)) if axis in dims else kept.digit(next(rows)) for axis in range(x.rank)
    ]
    with kernel.loop(f"for start in range(part * {anchor.part}, (part + 1) * {anchor.part}, BLOCK):"):
        kernel.line("cols = start + tl.arange(0, BLOCK)")
        kernel.line(f"mask = cols < {length}")
        name = kernel.at(x, coords)
        if not (kernel.in_memory(x) and anchor.kind == "sum"):
            name = f"tl.where(mask, {name}, {neutral})"
        step = {"sum": "acc += {}", "prod": "acc *= {}", "amax": "acc = tl.maximum(acc, {})"}
        kernel.line(step.get(anchor.kind, "acc = tl.minimum(acc, {})").format(name))
    functions = {"sum": "tl.sum(acc, axis=0)", "amax": "tl.max(acc, axis=0)", "amin": "tl.min(acc, axis=0)"}
    kernel.line(f"acc = {functions.get(anchor.kind, 'tl.reduce(acc, 0, multiply)')}")
    parts = Group("part", (anchor.shape[1],), ("P",))
    place: list[Index] = [
        Group("row", (anchor.shape[0],), ("R",)).digit(0) if has_rows else 0,
        parts.digit(0),
    ]
    kernel.done[id(anchor)] = ("acc", frozenset(), None)
    store_at(kernel, anchor, (place, place, anchor.shape))
    grid = f"({host(anchor.shape[1])}{f', {host(anchor.shape[0])}' if has_rows else ','})"
    return context.finish(
        kernel, {"BLOCK": str(BLOCK)}, grid,
        "Each program reduces one part; a second kernel joins the parts.",
        helpers={"multiply": MULTIPLY} if anchor.kind == "prod" else {},
    )  # fmt: skip
