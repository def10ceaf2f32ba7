"""Partitions a graph into kernels: what can be one kernel is one kernel.

A region grows from an *anchor* (a reduction, product, convolution, window or scan) over the pointwise
operators behind it. Cheap operators before it are computed where they are read. What is left is a flat
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_core.generator.ir import CHEAP, Value, readers_of, stored, walk
from kernel_core.generator.names import canonical
from kernel_core.generator.sizes import is_one, product

_MOST_INLINED = 32
_COUNTED = ("point", "cat", "gather", "take")
_COSTLY = {
    *("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sigmoid", "silu", "mish", "gelu_erf"),
    *("gelu_tanh", "erf", "power", "softplus", "elu", "sin", "cos"),
}


@dataclass
class Region:
    """Values that one kernel computes."""

    kind: str
    """Name of the schedule: `flat`, or the operator of the anchor."""
    anchor: Value
    core: dict[int, Value]
    """Values that depend on the anchor; all others in the kernel are read before it."""
    outputs: list[Value] = field(default_factory=list)


class Plan:
    """Regions in an order in which they can run, and calls of torch between them."""

    def __init__(self, outputs: Sequence[Value]) -> None:
        self.values = walk(tuple(outputs))
        self.outputs = [stored(output) for output in outputs]
        self.readers = readers_of(self.values)
        self.forced: set[int] = {id(output) for output in self.outputs}
        self._force()
        self.refused: set[int] = set()
        """Values that were tried behind an anchor and cannot be there."""
        self.regions: list[Region] = []
        self.partition()

    def _force(self) -> None:
        inlined: dict[int, set[int]] = {}
        for value in self.values:
            before = [inlined[id(tensor)] for tensor in value.tensors]
            own = {id(value)} if value.op in _COUNTED else set[int]()
            inlined[id(value)] = own.union(*before) if value.op in CHEAP else set()
            if len(inlined[id(value)]) > _MOST_INLINED:
                self._force_one(value)
                inlined[id(value)] = set()
            if value.op == "call":
                for tensor in value.tensors:
                    self._force_one(tensor)
            elif value.op == "scatter":
                if value.inputs[0].op != "full":
                    self._force_one(value.inputs[0])
            elif value.op in ("dot", "conv", "window", "attention"):
                for tensor in value.tensors:
                    is_tiled = value.op == "conv" and value.is_tiled
                    if is_tiled or _work(tensor) > (1 if value.op != "window" else 4):
                        self._force_one(tensor)

    def _force_one(self, value: Value) -> None:
        """Have a value in memory; layout that changes nothing in memory is done by the host."""
        self.forced.add(id(stored(value)))

    def partition(self) -> None:
        """Make the regions anew, with what was refused left out."""
        self.regions, owned = [], set[int]()
        for value in self.values:
            if value.op in (*CHEAP, "leaf", "call") or id(value) in owned:
                continue
            region = Region(value.op, value, self._grown(value, owned))
            owned |= set(region.core)
            self.regions.append(region)
        for region in self.regions:
            region.outputs = [
                value
                for value in region.core.values()
                if id(value) in self.forced
                or any(id(user) not in region.core for user in self.readers[id(value)])
            ]
            region.outputs = self._without_views(region)
        for value in self.values:
            if id(value) in self.forced and id(value) not in owned and value.op in CHEAP:
                self._add_flat(value)
        self.materialised = {id(output) for region in self.regions for output in region.outputs}

    def _add_flat(self, value: Value) -> None:
        """Give a value a flat kernel: that of another result of its shape, or one of its own."""
        for region in self.regions if value in self.outputs else ():
            first = region.anchor
            is_like = region.kind == "flat" and first in self.outputs and _same_shape(first, value)
            if is_like and not any(item.op not in (*CHEAP, "leaf") for item in walk((first, value))):
                region.core[id(value)] = value
                region.outputs.append(value)
                return
        self.regions.append(Region("flat", value, {id(value): value}, [value]))

    def _without_views(self, region: Region) -> list[Value]:
        """Outputs without those that are reshapes of another output, which share its memory."""
        kept = []
        for value in region.outputs:
            base = stored(value)
            own = base if id(base) in region.core else value
            if own not in kept:
                kept.append(own)
        return kept

    def _grown(self, anchor: Value, owned: set[int]) -> dict[int, Value]:
        """The anchor, what can be computed behind it, and reductions beside it that read the same tensor."""
        core, tainted = {id(anchor): anchor}, set[int]()
        for value in self.values:
            if value is anchor:
                continue
            needs = [tensor for tensor in value.tensors if id(tensor) in core or id(tensor) in tainted]
            is_sibling = anchor.op == value.op == "reduce" and _same_axes(value, anchor)
            if not needs and not (is_sibling and _sources(value) & _sources(anchor)):
                continue
            is_free = id(value) not in owned and id(value) not in self.refused
            is_free = is_free and not any(id(tensor) in tainted for tensor in needs)
            if is_free and (is_sibling or self._joins(value, anchor, core)):
                core[id(value)] = value
            elif needs:
                tainted.add(id(value))
        return core

    def _joins(self, value: Value, anchor: Value, core: dict[int, Value]) -> bool:
        if value.op == "gather" and anchor.op == "reduce":
            return _picks_one(value, anchor, core)
        if anchor.op == "select":
            return value.op == "gather" and value.inputs == (anchor.inputs[0], anchor)
        if value.op not in ("point", "cast", "reshape") or anchor.op in ("partial", "scatter"):
            return False
        size = int(product(value.shape))
        inside = [tensor for tensor in value.tensors if id(tensor) in core]
        if any(int(product(tensor.shape)) == size for tensor in inside):
            return True
        if anchor.op != "reduce":
            return False
        domain = anchor.inputs[0].shape
        return len(domain) == value.rank and all(
            int(a) == int(b) for a, b in zip(domain, value.shape, strict=True)
        )


def _picks_one(value: Value, anchor: Value, core: dict[int, Value]) -> bool:
    """True for one element of each row, at an index that does not depend on the kernel's own results."""
    x, index = value.inputs
    return (
        (value.dim,) == anchor.dims
        and is_one(value.shape[value.dim])
        and id(index) not in core
        and [int(size) for size in x.shape] == [int(size) for size in anchor.inputs[0].shape]
    )


def _sources(value: Value) -> set[int]:
    """Tensors in memory that a value is computed from, and the values before it that kernels make."""
    sources, seen, waiting = set[int](), set[int](), list(value.tensors)
    while waiting:
        tensor = waiting.pop()
        if tensor.op not in CHEAP:
            sources.add(id(tensor))
        elif id(tensor) not in seen:  # the ways through shared values are exponentially many
            seen.add(id(tensor))
            waiting += tensor.tensors
    return sources


def _same_shape(value: Value, other: Value) -> bool:
    return list(map(canonical, value.shape)) == list(map(canonical, other.shape))


def _same_axes(value: Value, anchor: Value) -> bool:
    """True if two reductions go over the same axes of the same sizes."""
    mine, its = value.inputs[0].shape, anchor.inputs[0].shape
    return (
        value.dims == anchor.dims
        and len(mine) == len(its)
        and all(int(a) == int(b) for a, b in zip(mine, its, strict=True))
    )


def _work(value: Value) -> int:
    """Pointwise operators that would be computed again for each tile; many where one is costly."""
    total, stack = 0, [value]
    while stack:
        inner = stack.pop()
        if inner.op in CHEAP:
            stack += inner.tensors
            if inner.op in _COUNTED:
                total += 9 if inner.op == "point" and inner.entry.name in _COSTLY else 1
    return total
