"""Order of short rows, and places in sorted sequences."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import cast, full, iota, permute, point, reduce, reshape, unsqueeze
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.operators.indexing import put
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Number, Size, host, product

LONGEST_ORDERED = 2048
"""Elements of a row that are ordered by comparing each with all others."""
MOST_SELECTED = 32
"""Elements that are taken from a row one after another."""


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
    values = put(full(shape, 0, x.dtype), rows, places, "store", k is not None)
    along = iota(rows.shape, rows.rank - 1, torch.int64)
    indices = put(full(shape, 0, torch.int64), along, places, "store", k is not None)
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


operator("bucketize")(lambda input, boundaries, **how: _search(boundaries, input, **how))
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
