"""Indexing by tensors, writes at indices, assignment to parts, and order of short rows."""

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
    permute,
    point,
    reduce,
    reshape,
    slice_axis,
    sub,
    unsqueeze,
)  # fmt: skip
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.operators.layout import getitem, pad
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Number, Size, host, product

LONGEST_ORDERED = 2048
"""Elements of a row that are ordered by comparing each with all others."""
MOST_SELECTED = 32
"""Elements that are taken from a row one after another."""


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


def _put(x: Value, source: Value, indices: list[Value | int], kind: str, bounded: bool = False) -> Value:
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
    return _put(x, source, at, "sum" if accumulate else "store")


def _wrapped(index: Value, size: Any) -> Value:
    return point("where", point("lt", index, 0), add(index, size), index)


def _along(x: Value, dim: int, index: Value, source: Value, kind: str) -> Value:
    at = x.axis(dim)
    if source.rank != index.rank or x.rank == 0:
        raise Unsupported("scatter of scalars")
    for axis, size in enumerate(index.shape):
        if int(source.shape[axis]) != int(size):
            source = slice_axis(source, axis, 0, size)
    return _put(x, source, [index if axis == at else axis for axis in range(x.rank)], kind)


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
    return _put(x, source, [flat if axis == at else axis for axis in range(x.rank)], kind)


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
    made = _put(flat, reshape(source, at.shape), [at], "sum" if accumulate else "store")
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


@operator("select_scatter")
def _select_scatter(x: Value, src: Value, dim: int, index: int) -> Value:
    return assign(x, tuple([slice(None)] * x.axis(dim) + [index]), src)


operator("copy")(lambda x, src, non_blocking=False: expand(cast(src, x.dtype), x.shape))


# --- order of short rows


def _last(x: Value, dim: int) -> Value:
    order = [axis for axis in range(x.rank) if axis != x.axis(dim)]
    return permute(x, [*order, x.axis(dim)])


def _back(x: Value, dim: int) -> Value:
    order = list(range(x.rank - 1))
    order.insert(dim, x.rank - 1)
    return permute(x, order)


def _ranks(x: Value, descending: bool) -> Value:
    """Place of each element of the last axis in its row's order; equal ones keep theirs."""
    n = x.shape[-1]
    if int(n) > LONGEST_ORDERED:
        raise Unsupported(f"order of rows of more than {LONGEST_ORDERED} elements")
    own, other = unsqueeze(x, -1), unsqueeze(x, -2)
    before = point("gt" if descending else "lt", other, own)
    earlier = point("lt", iota((n, n), 1, torch.int64), iota((n, n), 0, torch.int64))
    tie = point("logical_and", point("eq", other, own), earlier)
    return reduce(cast(point("logical_or", before, tie), torch.int64), "sum", -1)


operator("sort")(lambda x, dim=-1, descending=False, stable=None: _ordered(x, dim, descending, None))


def _ordered(x: Value, dim: int, descending: bool, k: Any) -> tuple[Value, Value]:
    if x.rank == 0:
        return x, full((), 0, torch.int64)
    at, rows = x.axis(dim), _last(x, dim)
    ranks = _ranks(rows, descending)
    shape = [*rows.shape[:-1], rows.shape[-1] if k is None else k]
    places: list[Value | int] = [*range(rows.rank - 1), ranks]
    values = _put(full(shape, 0, x.dtype), rows, places, "store", k is not None)
    along = iota(rows.shape, rows.rank - 1, torch.int64)
    indices = _put(full(shape, 0, torch.int64), along, places, "store", k is not None)
    return _back(values, at), _back(indices, at)


operator("argsort")(lambda x, dim=-1, descending=False, stable=False: _ordered(x, dim, descending, None)[1])
operator("msort")(lambda x: _ordered(x, 0, False, None)[0])


@operator("topk")
def _topk(x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    is_short = int(x.shape[dim]) <= LONGEST_ORDERED if x.rank else False
    is_float = x.dtype.is_floating_point and x.dtype is not torch.float64
    if not is_short or not is_float or int(k) > MOST_SELECTED:
        return _ordered(x, dim, largest, k)
    at, rows = x.axis(dim), _last(x, dim)
    shape = [*rows.shape[:-1], k]
    indices = make("select", (rows,), shape, torch.int64, smallest=not largest)
    values = make("gather", (rows, indices), shape, x.dtype, dim=rows.rank - 1)
    return _back(values, at), _back(indices, at)


def _at_rank(x: Value, ranks: Value, rank: Any) -> tuple[Value, Value]:
    """Element and index at a place of the order of the last axis."""
    chosen = point("eq", ranks, rank)
    value = reduce(point("where", chosen, x, 0), "sum", -1)
    along = iota(x.shape, x.rank - 1, torch.int64)
    return cast(value, x.dtype), reduce(point("where", chosen, along, 0), "sum", -1)


@operator("kthvalue")
def _kthvalue(x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    rows = _last(x, dim)
    pair = _at_rank(rows, _ranks(rows, False), k - 1)
    value, index = (unsqueeze(half, x.axis(dim)) if keepdim else half for half in pair)
    return value, index


@operator("median", "nanmedian")
def _median(x: Value, dim: Any = None, keepdim: bool = False) -> Any:
    if x.rank == 0:
        raise Unsupported("the median of a number")
    if dim is None:
        flat = reshape(x, [product(x.shape)])
        return _kthvalue(flat, (flat.shape[0] - 1) // 2 + 1)[0]
    return _kthvalue(x, (x.shape[x.axis(dim)] - 1) // 2 + 1, dim, keepdim)


@operator("quantile", "nanquantile")
def _quantile(
    x: Value, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Value:
    if not isinstance(q, float) or interpolation != "linear" or x.rank == 0:
        raise Unsupported("several quantiles, or an interpolation that is not linear")
    rows = reshape(x, [product(x.shape)]) if dim is None else _last(x, dim)
    place = (rows.shape[-1] - 1) * q
    low = Size(int(place), f"int({host(place)})") if isinstance(place, Number) else int(place)
    ranks = _ranks(rows, False)
    first = _at_rank(rows, ranks, low)[0]
    second = first if int(place) == place else _at_rank(rows, ranks, low + 1)[0]
    value = point("lerp", first, second, place - low)
    if not keepdim:
        return value
    return reshape(value, [1] * x.rank) if dim is None else unsqueeze(value, x.axis(dim))


def _places(edges: Value, x: Value, right: bool, out_int32: bool) -> Value:
    below = point("le" if right else "lt", unsqueeze(edges, -2), unsqueeze(x, -1))
    return cast(reduce(cast(below, torch.int64), "sum", -1), torch.int32 if out_int32 else torch.int64)


@operator("searchsorted")
def _search(
    sorted_sequence: Value, input: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
    sorter: Any = None,
) -> Value:  # fmt: skip
    if sorter is not None or not isinstance(input, Value):
        raise Unsupported("searchsorted with a sorter or a number")
    edges = sorted_sequence
    if edges.rank == 1 and input.rank != 1:
        edges = reshape(edges, [*([1] * (input.rank - 1)), edges.shape[0]]) if input.rank else edges
    if input.rank == 0:
        return reshape(_search(edges, reshape(input, (1,)), out_int32=out_int32, right=right, side=side), ())
    return _places(edges, input, right or side == "right", out_int32)


@operator("bucketize")
def _bucketize(input: Any, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _search(boundaries, input, out_int32=out_int32, right=right)


operator("cummax")(lambda x, dim: _running(x, dim, "amax"))
operator("cummin")(lambda x, dim: _running(x, dim, "amin"))


def _running(x: Value, dim: int, kind: str) -> tuple[Value, Value]:
    """Running extreme, and the last index that reached it."""
    if x.rank == 0:
        return x, full((), 0, torch.int64)
    at = x.axis(dim)
    values = make("scan", (x,), x.shape, x.dtype, kind=kind, dim=at)
    reached = point("ge" if kind == "amax" else "le", x, values)
    along = point("where", reached, iota(x.shape, at, torch.int64), 0)
    return values, make("scan", (along,), x.shape, torch.int64, kind="amax", dim=at)


@operator("one_hot")
def _one_hot(x: Value, num_classes: int = -1) -> Value:
    if int(num_classes) < 0:
        raise Unsupported("a number of classes that depends on values")
    return cast(point("eq", unsqueeze(x, -1), iota((num_classes,), 0, torch.int64)), torch.int64)
