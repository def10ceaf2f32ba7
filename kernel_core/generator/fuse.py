"""Partitions a graph into kernels: what can be one kernel is one kernel.

A region grows from an *anchor* (a reduction, product, convolution, window or scan) over the pointwise
operators behind it. Cheap operators before it are computed where they are read. What is left is a flat
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_core.generator.ir import CHEAP, Value, make, walk
from kernel_core.generator.sizes import bind, ceil_div, is_one, product

_MOST_INLINED = 24
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
        self.outputs = [stored(one) for one in outputs]
        self.consumers: dict[int, list[Value]] = {id(one): [] for one in self.values}
        for value in self.values:
            for one in value.tensors:
                self.consumers[id(one)].append(value)
        self.forced: set[int] = {id(one) for one in self.outputs}
        self._force()
        self.refused: set[int] = set()
        """Values that were tried behind an anchor and cannot be there."""
        self.regions: list[Region] = []
        self.partition()

    def _force(self) -> None:
        inlined: dict[int, int] = {}
        for value in self.values:
            total = sum(inlined.get(id(one), 0) for one in value.tensors)
            is_counted = value.op in ("point", "cat", "gather", "take")
            inlined[id(value)] = total + is_counted if value.op in CHEAP else 0
            if value.op in CHEAP and inlined[id(value)] > _MOST_INLINED:
                self._force_one(value)
                inlined[id(value)] = 0
            if value.op == "call":
                for one in value.tensors:
                    self._force_one(one)
            elif value.op == "scatter":
                if value.inputs[0].op != "full":
                    self._force_one(value.inputs[0])
            elif value.op in ("dot", "conv", "window"):
                for one in value.tensors:
                    if _work(one) > (1 if value.op != "window" else 4):
                        self._force_one(one)

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
                one
                for one in region.core.values()
                if id(one) in self.forced
                or any(id(user) not in region.core for user in self.consumers[id(one)])
            ]
            region.outputs = self._without_views(region)
        for value in self.values:
            if id(value) in self.forced and id(value) not in owned and value.op in CHEAP:
                self.regions.append(Region("flat", value, {id(value): value}, [value]))
        self.materialised = {id(one) for region in self.regions for one in region.outputs}

    def _without_views(self, region: Region) -> list[Value]:
        """Outputs without those that are reshapes of another output, which share its memory."""
        kept = []
        for one in region.outputs:
            base = stored(one)
            if base is not one and id(base) in region.core:
                one = base
            if one not in kept:
                kept.append(one)
        return kept

    def _grown(self, anchor: Value, owned: set[int]) -> dict[int, Value]:
        """The anchor, what can be computed behind it, and reductions beside it that read the same tensor."""
        core, tainted = {id(anchor): anchor}, set[int]()
        for value in self.values:
            if value is anchor:
                continue
            needs = [one for one in value.tensors if id(one) in core or id(one) in tainted]
            is_sibling = anchor.op == value.op == "reduce" and _same_axes(value, anchor)
            if not needs and not (is_sibling and value.inputs[0] is anchor.inputs[0]):
                continue
            is_free = id(value) not in owned and id(value) not in self.refused
            is_free = is_free and not any(id(one) in tainted for one in needs)
            if is_free and (is_sibling or self._joins(value, anchor, core)):
                core[id(value)] = value
            elif needs:
                tainted.add(id(value))
        return core

    def _joins(self, value: Value, anchor: Value, core: dict[int, Value]) -> bool:
        if value.op == "gather" and anchor.op == "reduce":
            return _picks_one(value, anchor, core)
        if value.op not in ("point", "cast", "reshape") or anchor.op in ("partial", "scatter"):
            return False
        size = int(product(value.shape))
        inside = [one for one in value.tensors if id(one) in core]
        if any(int(product(one.shape)) == size for one in inside):
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
        value.index_dims is None
        and (value.dim,) == anchor.dims
        and is_one(value.shape[value.dim])
        and id(index) not in core
        and [int(size) for size in x.shape] == [int(size) for size in anchor.inputs[0].shape]
    )


def _same_axes(value: Value, anchor: Value) -> bool:
    """True if two reductions go over the same axes of the same sizes."""
    one, other = value.inputs[0].shape, anchor.inputs[0].shape
    return (
        value.dims == anchor.dims
        and len(one) == len(other)
        and all(int(a) == int(b) for a, b in zip(one, other, strict=True))
    )


_STAGES = ("sum", "amax", "amin", "prod")
_FEW_RESULTS, _LONG, _PART = 128, 32768, 16384
"""Results below which, and elements beyond which, a reduction is split; elements of a part."""


def in_two_stages(outputs: Sequence[Value]) -> list[Value]:
    """The outputs with long reductions to few results split: parts first, by many programs, then the rest."""
    made: dict[int, Value] = {}
    for value in walk(tuple(outputs)):
        inputs = tuple(made[id(one)] if isinstance(one, Value) else one for one in value.inputs)
        is_same = all(a is b for a, b in zip(inputs, value.inputs, strict=True))
        new = value if is_same else Value(value.op, inputs, value.shape, value.dtype, value.attributes)
        made[id(value)] = _split(new) if value.op == "reduce" else new
    return [made[id(one)] for one in outputs]


def _split(value: Value) -> Value:
    x = value.inputs[0]
    length = product(x.shape[axis] for axis in value.dims)
    results = product(value.shape)
    if value.kind not in _STAGES or int(results) > _FEW_RESULTS or int(length) < _LONG:
        return value
    parts = bind(ceil_div(length, _PART), "parts")
    first = make(
        "partial", (x,), (results, parts), value.dtype, kind=value.kind, dims=value.dims, part=_PART
    )  # fmt: skip
    second = make("reduce", (first,), (results, 1), value.dtype, kind=value.kind, dims=(1,))
    return make("reshape", (second,), value.shape, value.dtype)


def stored(value: Value) -> Value:
    """The value that a reshape shares memory with."""
    while value.op == "reshape" or (
        value.op == "expand"
        and value.rank == value.inputs[0].rank
        and all(int(a) == int(b) for a, b in zip(value.shape, value.inputs[0].shape, strict=True))
    ):
        value = value.inputs[0]
    return value


def _work(value: Value) -> int:
    """Pointwise operators that would be computed again for each tile; many where one is costly."""
    total, stack = 0, [value]
    while stack:
        one = stack.pop()
        if one.op in CHEAP:
            stack += one.tensors
            if one.op in ("point", "gather", "take", "cat"):
                total += 9 if one.op == "point" and one.entry.name in _COSTLY else 1
    return total
