"""Indexing by tensors, writes at indices, and assignment to parts."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import (
    add,
    broadcast,
    cast,
    div,
    expand,
    full,
    iota,
    mul,
    point,
    reshape,
    slice_axis,
    sub,
    unsqueeze,
)  # fmt: skip
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.operators.parts import getitem, pad
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import product


@operator("index", "_unsafe_index")
def take(x: Value, indices: Any) -> Value:
    """`x[i, :, j]`: indices that are tensors, None for a whole axis; their axes stand as in torch."""
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(index.dtype is torch.bool or index.dtype.is_floating_point for index in given):
        raise Unsupported("a mask as an index")
    common = broadcast([index.shape for index in given])
    given = [expand(index, common) for index in given]
    is_together = dims == list(range(dims[0], dims[-1] + 1))
    place = dims[0] if is_together else 0
    rest = [size for dim, size in enumerate(x.shape) if dim not in dims]
    shape = [*rest[:place], *common, *rest[place:]]
    return make("take", (x, *given), shape, x.dtype, dims=tuple(dims), place=place, wraps=True)


def put(x: Value, source: Value, indices: list[Value | int], kind: str, bounded: bool = False) -> Value:
    """`x` with elements of `source` stored or added: for each axis an index, or the source's axis."""
    if kind not in ("store", "sum", "amax", "amin"):
        raise Unsupported(f"a reduction by {kind} at indices")
    if kind != "store" and x.dtype not in (torch.float32, torch.float16, torch.int32, torch.int64):
        raise Unsupported(f"atomic {kind} of {x.dtype}")
    axes, tensors = list[tuple[str, int]](), list[Value]()
    for index in indices:
        if isinstance(index, Value):
            axes.append(("index", len(tensors)))
            tensors.append(expand(index, source.shape))
        else:
            axes.append(("axis", index))
    inputs = (x, cast(source, x.dtype), *tensors)
    return make("scatter", inputs, x.shape, x.dtype, axes=tuple(axes), kind=kind, bounded=bounded)


@operator("index_put", "_unsafe_index_put", "_index_put_impl")
def _index_put(x: Value, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Value:
    values = values if isinstance(values, Value) else full((), values, x.dtype)
    given = [*indices, *([None] * (x.rank - len(indices)))]
    if len(indices) == 1 and isinstance(indices[0], Value) and indices[0].dtype is torch.bool:
        mask = indices[0]
        if values.rank or accumulate:
            raise Unsupported("values at a mask")
        return cast(
            point("where", reshape(mask, [*mask.shape, *([1] * (x.rank - mask.rank))]), values, x), x.dtype
        )
    region = take(x, given)
    source, n = expand(values, region.shape), region.inputs[1].rank
    rest = iter([axis for axis in range(region.rank) if not region.place <= axis < region.place + n])
    at: list[Value | int] = []
    for index in given:
        if index is None:
            at.append(next(rest))
        else:
            tail = region.rank - region.place - n
            wide = expand(index, region.inputs[1].shape)
            at.append(_wrapped(reshape(wide, [*wide.shape, *([1] * tail)]), x.shape[len(at)]))
    return put(x, source, at, "sum" if accumulate else "store")


def _wrapped(index: Value, size: Any) -> Value:
    return point("where", point("lt", index, 0), add(index, size), index)


def _along(x: Value, dim: int, index: Value, source: Value, kind: str) -> Value:
    at = x.axis(dim)
    if source.rank != index.rank or x.rank == 0:
        raise Unsupported("scatter of scalars")
    for axis, size in enumerate(index.shape):
        if int(source.shape[axis]) != int(size):
            source = slice_axis(source, axis, 0, size)
    return put(x, source, [index if axis == at else axis for axis in range(x.rank)], kind)


_REDUCTIONS = {"add": "sum", None: "store"}


@operator("scatter")
def _scatter(
    x: Value, dim: int, index: Value, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Value:
    src = value if src is None else src
    source = src if isinstance(src, Value) else full(index.shape, src, x.dtype)
    return _along(x, dim, index, source, _REDUCTIONS.get(reduce, str(reduce)))


operator("scatter_add")(lambda x, dim, index, src: _along(x, dim, index, src, "sum"))


@operator("scatter_reduce")
def _scatter_reduce(
    x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if reduce == "mean":
        total = _scatter_reduce(x, dim, index, src, "sum", include_self=include_self)
        seen = _along(
            full(x.shape, int(include_self), x.dtype), dim, index, full(src.shape, 1, x.dtype), "sum"
        )
        return div(total, point("maximum", seen, 1))
    if not include_self:
        if reduce not in ("sum", "amax", "amin"):
            raise Unsupported(f"scatter_reduce by {reduce} without self")
        start = {"sum": 0.0, "amax": float("-inf"), "amin": float("inf")}[reduce]
        if not x.dtype.is_floating_point:
            raise Unsupported("scatter_reduce of integers without self")
        x = _along(x, dim, index, full(index.shape, start, x.dtype), "store")
    return _along(x, dim, index, src, reduce)


def _slices(x: Value, dim: int, index: Value, source: Value, kind: str) -> Value:
    at = x.axis(dim)
    flat = reshape(index, [index.shape[0] if index.rank else 1, *([1] * (x.rank - 1 - at))])
    shape = [index.shape[0] if axis == at and index.rank else n for axis, n in enumerate(x.shape)]
    if not index.rank:
        shape[at] = 1
    source = expand(source, shape)
    return put(x, source, [flat if axis == at else axis for axis in range(x.rank)], kind)


@operator("index_add")
def _index_add(x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    return _slices(x, dim, index, source if alpha == 1 else mul(source, alpha), "sum")


operator("index_copy")(lambda x, dim, index, source: _slices(x, dim, index, source, "store"))


@operator("index_fill")
def _index_fill(x: Value, dim: int, index: Value, value: Any) -> Value:
    source = value if isinstance(value, Value) else full((), value, x.dtype)
    return _slices(x, dim, index, source, "store")


@operator("index_reduce")
def _index_reduce(
    x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if not include_self or reduce not in ("amax", "amin"):
        raise Unsupported(f"index_reduce by {reduce}")
    return _slices(x, dim, index, source, reduce)


@operator("put")
def _put_flat(x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = reshape(x, [product(x.shape)])
    at = _wrapped(reshape(index, [product(index.shape)]), flat.shape[0])
    made = put(flat, reshape(source, at.shape), [at], "sum" if accumulate else "store")
    return reshape(made, x.shape)


@operator("setitem")
def assign(x: Value, key: Any, value: Any) -> Value:
    """`x` after `x[key] = value`."""
    keys = list(key) if isinstance(key, tuple) else [key]
    source = value if isinstance(value, Value) else full((), value, x.dtype)
    if any(isinstance(part, Value) for part in keys):
        if any(not isinstance(part, Value) and part != slice(None) for part in keys):
            raise Unsupported("an assignment at indices and parts")
        return _index_put(x, [part if isinstance(part, Value) else None for part in keys], source)
    count = sum(part is not None and part is not Ellipsis for part in keys)
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (x.rank - count)
    if any(part is None or isinstance(part, bool | list) for part in keys):
        raise Unsupported("an assignment with new axes, lists or truth values")
    region = getitem(x, tuple(keys))
    source = expand(cast(source, x.dtype), region.shape)
    kept = [slice(part, part + 1 if part != -1 else None) if isinstance(part, int) else part for part in keys]
    whole = getitem(x, tuple(kept))
    return _assigned(x, reshape(source, whole.shape), [*kept, *([slice(None)] * (x.rank - len(kept)))])


def _assigned(x: Value, source: Value, parts: list[slice]) -> Value:
    """`x` where the parts of each axis are taken from `source`, which has their sizes."""
    inside: Value | None = None
    for axis, part in enumerate(parts):
        size, length = x.shape[axis], source.shape[axis]
        step = 1 if part.step is None else part.step
        if part.start is None and part.stop is None and int(step) == 1:
            continue
        start: Any = 0 if part.start is None else part.start if part.start >= 0 else size + part.start
        place = sub(iota((size,), 0, torch.int64), start)
        mine = point(
            "logical_and",
            point("ge", place, 0),
            point("lt", place, length if int(step) == 1 else length * step),
        )
        if int(step) != 1:
            mine = point("logical_and", mine, point("eq", point("floor_remainder_int", place, step), 0))
            wide = expand(
                unsqueeze(source, axis + 1), [*source.shape[: axis + 1], step, *source.shape[axis + 1 :]]
            )
            source = reshape(wide, [*source.shape[:axis], length * step, *source.shape[axis + 1 :]])
        edges = [0] * (2 * (x.rank - axis))
        edges[-2], edges[-1] = start, size - start - source.shape[axis]
        source = _exactly(pad(source, edges), axis, size)
        mine = reshape(mine, [size, *([1] * (x.rank - axis - 1))])
        inside = mine if inside is None else point("logical_and", inside, mine)
    return source if inside is None else cast(point("where", inside, source, x), x.dtype)


def _exactly(x: Value, axis: int, size: Any) -> Value:
    """The same value with the size of an axis spelled as that of another tensor."""
    return Value(x.op, x.inputs, (*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype, x.attributes)


@operator("slice_scatter")
def _slice_scatter(
    x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    end = None if end is not None and int(end) >= int(x.shape[x.axis(dim)]) else end
    return assign(x, tuple([slice(None)] * x.axis(dim) + [slice(start, end, step)]), src)


operator("select_scatter")(
    lambda x, src, dim, index: assign(x, tuple([slice(None)] * x.axis(dim) + [index]), src)
)
operator("copy")(lambda x, src, non_blocking=False: expand(cast(src, x.dtype), x.shape))


@operator("one_hot")
def _one_hot(x: Value, num_classes: int = -1) -> Value:
    if int(num_classes) < 0:
        raise Unsupported("a number of classes that depends on values")
    return cast(point("eq", unsqueeze(x, -1), iota((num_classes,), 0, torch.int64)), torch.int64)
