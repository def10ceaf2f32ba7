"""Selection schedule: a program takes the largest or smallest elements of its rows one after another.

An element and its index are one integer, so one maximum finds both. Of equal elements the first is taken.
"""

from __future__ import annotations

from kernel_core.generator.index import Group, Index, Text
from kernel_core.generator.schedules.rows import Rows
from kernel_core.generator.schedules.written import Context, Written, store_at

SORTABLE = """LOWEST = tl.constexpr(-(2**63))


@triton.jit
def sortable(x, cols):
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - cols)


@triton.jit
def index_of(key):
    return 0x7FFFFFFF - (key & 0x7FFFFFFF)
"""


def write(context: Context) -> Written:
    """Indices of the first elements, and the elements."""
    anchor = context.region.anchor
    x, last = anchor.inputs[0], anchor.rank - 1
    rows = Rows(context, x.shape, (last,))
    kernel, keep, coords = rows.kernel, rows.shape.keep, rows.coords(True)
    element = kernel.at(x, coords)
    cols = rows.shape.walked.name + rows.shape.walked.view
    kernel.fresh("keys")
    sign = "-" if anchor.smallest else ""
    kernel.line(f"keys = tl.where({rows.inside()}, sortable({sign}{element}, {cols}), LOWEST)")
    place = Group("k", (anchor.shape[last],), ("K",), depth=1)
    own: list[Index] = [*coords[:-1], place.digit(0)]
    with kernel.loop(f"for k in range({kernel.size(anchor.shape[last], 'K')}):"):
        kernel.line(f"best = tl.max(keys, {keep})")
        name = kernel.fresh("index", 1)
        kernel.line(f"{name} = index_of(best)")
        kernel.done[id(anchor)] = (name, frozenset([rows.shape.kept]), None)
        for value in context.region.outputs:
            if value is not anchor:
                at: list[Index] = [*coords[:-1], Text(name, frozenset([rows.shape.kept, place]), 4)]
                kernel.done[id(value)] = (kernel.at(x, at), frozenset(), None)
            store_at(kernel, value, (own, own, value.shape))
        kernel.line("keys = tl.where(keys == best, LOWEST, keys)")
    plan = "Each program loads its rows once and takes one element of each after another."
    return rows.finish(plan, {"sortable": SORTABLE})
