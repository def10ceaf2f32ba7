"""Partitions a graph into kernels: what can be one kernel is one kernel.

A region grows from an *anchor* (a reduction, product, convolution, window or scan) over the pointwise
operators behind it. Cheap operators before it are computed where they are read. What is left is a flat
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernel_core.generator.ir import CHEAP, Value, is_point, make, stored, walk
from kernel_core.generator.names import bind, canonical
from kernel_core.generator.sizes import ceil_div, is_one, product

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
        self.consumers: dict[int, list[Value]] = {id(value): [] for value in self.values}
        for value in self.values:
            for tensor in value.tensors:
                self.consumers[id(tensor)].append(value)
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
                    if _work(tensor) > (1 if value.op != "window" else 4):
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
                or any(id(user) not in region.core for user in self.consumers[id(value)])
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
    sources, waiting = set[int](), list(value.tensors)
    while waiting:
        tensor = waiting.pop()
        if tensor.op in CHEAP:
            waiting += tensor.tensors
        else:
            sources.add(id(tensor))
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


_STAGES = ("sum", "amax", "amin", "prod")
_FEW_RESULTS, _LONG, _PART = 48, 32768, 16384
"""Results below which, and elements beyond which, a reduction is split; elements of a part."""


def in_two_stages(outputs: Sequence[Value]) -> list[Value]:
    """The outputs with long reductions to few results split: parts first, by many programs, then the rest."""
    return _rebuilt(outputs, lambda value, new, made: _split(new) if value.op == "reduce" else new)


def _rebuilt(
    outputs: Sequence[Value], change: Callable[[Value, Value, dict[int, Value]], Value]
) -> list[Value]:
    """The outputs with each value made anew of new ones; `change` gets the value, its copy and all copies."""
    made: dict[int, Value] = {}
    for value in walk(tuple(outputs)):
        inputs = tuple(
            made[id(operand)] if isinstance(operand, Value) else operand for operand in value.inputs
        )
        is_same = all(a is b for a, b in zip(inputs, value.inputs, strict=True))
        new = value if is_same else Value(value.op, inputs, value.shape, value.dtype, value.attributes)
        made[id(value)] = change(value, new, made)
    return [made[id(output)] for output in outputs]


def _split(value: Value) -> Value:
    x = value.inputs[0]
    length = product(x.shape[axis] for axis in value.dims)
    results = product(value.shape)
    if value.kind not in _STAGES or int(results) > _FEW_RESULTS or int(length) < _LONG:
        return value
    parts, origin = bind(ceil_div(length, _PART), "parts"), value.origin
    first = make(
        "partial", (x,), (results, parts), value.dtype, kind=value.kind, dims=value.dims, part=_PART,
        origin=origin,
    )  # fmt: skip
    second = make("reduce", (first,), (results, 1), value.dtype, kind=value.kind, dims=(1,), origin=origin)
    return make("reshape", (second,), value.shape, value.dtype, origin=origin)


_LARGEST_HEAD = 256


def with_attention(outputs: Sequence[Value]) -> list[Value]:
    """The outputs with each softmax of scores between two products as one `attention`."""
    users: dict[int, int] = {id(output): 1 for output in outputs}
    for value in walk(tuple(outputs)):
        for tensor in value.tensors:
            users[id(tensor)] = users.get(id(tensor), 0) + 1
    return _rebuilt(outputs, lambda value, new, made: _as_attention(value, new, made, users))


def _as_attention(value: Value, new: Value, made: dict[int, Value], users: dict[int, int]) -> Value:
    """A product of softmax weights and values as `attention`; any other value as it is."""
    scores = _softmax_of(value.inputs[0], users) if value.op == "dot" else None
    if scores is None or value.rank != scores.rank:
        return new
    scored, masks, stack = None, list[Value](), [scores]
    while stack:
        inner = stack.pop()
        if inner.op == "dot" and scored is None and inner.shape == scores.shape:
            scored = inner
        elif inner.op in ("point", "cast") and inner.shape == scores.shape:
            stack += inner.tensors
        else:
            masks.append(made[id(inner)])
    if scored is None or users[id(scored)] != (2 if scored is scores else 1):
        return new
    if max(int(scored.inputs[0].shape[-1]), int(value.shape[-1])) > _LARGEST_HEAD:
        return new
    product_of = made[id(scored)]
    inputs = (*product_of.inputs, new.inputs[1], *masks)
    return make(
        "attention", inputs, value.shape, value.dtype, product=product_of, scores=made[id(scores)],
        origin=(value.origin[0], "attention"),
    )  # fmt: skip


def _softmax_of(weights: Value, users: dict[int, int]) -> Value | None:
    """Return the scores of a softmax over the last axis, if nothing else reads its results."""
    if not is_point(weights, "true_divide") or users[id(weights)] != 1:
        return None
    raised, total = weights.inputs
    if not is_point(raised, "exp") or users[id(raised)] != 2 or not is_point(raised.inputs[0], "sub_"):
        return None
    scores, top = raised.inputs[0].inputs
    is_softmax = (
        isinstance(total, Value)
        and isinstance(top, Value)
        and (total.op, top.op) == ("reduce", "reduce")
        and (total.kind, top.kind) == ("sum", "amax")
        and total.inputs[0] is raised
        and top.inputs[0] is scores
        and total.dims == top.dims == (scores.rank - 1,)
    )
    return scores if is_softmax and users[id(scores)] == 2 else None


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
