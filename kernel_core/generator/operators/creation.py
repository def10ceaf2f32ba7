"""New tensors, diagonals and triangles."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import (
    cast,
    expand,
    full,
    iota,
    mul,
    permute,
    point,
    reduce,
    reshape,
    sub,
    unsqueeze,
)  # fmt: skip
from kernel_core.generator.ir import Unsupported, Value
from kernel_core.generator.operators.layout import sizes_of
from kernel_core.generator.operators.parts import gather_rows
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Size, host

operator("tril")(lambda x, diagonal=0: _triangle(x, "ge", diagonal))
operator("triu")(lambda x, diagonal=0: _triangle(x, "le", diagonal))


def _triangle(x: Value, sign: str, diagonal: int) -> Value:
    rows, cols = (iota(x.shape[-2:], dim, torch.int64) for dim in (0, 1))
    inside = point(
        sign,
        point("sub_", rows, cols) if not diagonal else point("add_", point("sub_", rows, cols), diagonal),
        0,
    )
    return cast(point("where", inside, x, 0), x.dtype)


@operator("diagonal", "linalg_diagonal")
def _diagonal(x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    first, second = x.axis(dim1), x.axis(dim2)
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    value = permute(x, [*rest, first, second])
    *lead, rows, cols = value.shape
    down, right = (-offset, 0) if offset < 0 else (0, offset)
    length, other = rows - down, cols - right
    if int(length) != int(other):
        length = Size(min(int(length), int(other)), f"min({host(length)}, {host(other)})")
    index = mul(iota((length,), 0, torch.int64), cols + 1)
    index = index if offset == 0 else point("add_", index, down * cols + right)
    return gather_rows(reshape(value, [*lead, rows * cols]), len(lead), index)


operator("trace")(lambda x: reduce(_diagonal(x), "sum"))
operator("diag")(lambda x, diagonal=0: _diagonal(x, diagonal) if x.rank == 2 else _diag_embed(x, diagonal))


@operator("diag_embed")
def _diag_embed(x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    if (dim1, dim2) != (-2, -1):
        raise Unsupported("a diagonal of other axes than the last two")
    n = x.shape[-1] + abs(int(offset))
    rows, cols = (iota((n, n), dim, torch.int64) for dim in (0, 1))
    values = unsqueeze(x, -2)
    if offset:
        place = point("minimum", expand(rows if offset > 0 else cols, (n, n)), x.shape[-1] - 1)
        values = gather_rows(x, x.rank - 1, place)
    inside = point("eq", cols if offset == 0 else sub(cols, offset), rows)
    return cast(point("where", inside, values, 0), x.dtype)


operator("zeros_like", "new_zeros_like")(lambda x, **how: full(x.shape, 0, how.get("dtype") or x.dtype))
operator("ones_like")(lambda x, **how: full(x.shape, 1, how.get("dtype") or x.dtype))
operator("full_like")(lambda x, fill_value, **how: full(x.shape, fill_value, how.get("dtype") or x.dtype))


@operator("fill_", "fill", "zero", "zero_")
def _fill(x: Value, value: Any = 0) -> Value:
    return (
        cast(expand(value, x.shape), x.dtype) if isinstance(value, Value) else full(x.shape, value, x.dtype)
    )


def _made(sizes: tuple[Any, ...], value: Any, how: dict[str, Any]) -> Value:
    return full(
        sizes_of(sizes or (how.get("size", ()),)), value, how.get("dtype") or torch.get_default_dtype()
    )


operator("zeros")(lambda *sizes, **how: _made(sizes, 0, how))
operator("ones")(lambda *sizes, **how: _made(sizes, 1, how))


@operator("arange")
def _arange(*limits: Any, dtype: Any = None, **_: Any) -> Value:
    if any(not isinstance(limit, int) for limit in limits):
        raise Unsupported("a range of fractions")
    first, stop, step = (0, limits[0], 1) if len(limits) == 1 else (*limits, 1)[:3]
    length = stop - first if int(step) == 1 else (stop - first + (step - 1)) // step
    return cast(iota((length,), 0, torch.int64, first, step), dtype or torch.int64)


@operator("eye")
def _eye(n: int, m: Any = None, *, dtype: Any = None, **_: Any) -> Value:
    shape = (n, n if m is None else m)
    rows, cols = (iota(shape, dim, torch.int64) for dim in (0, 1))
    return cast(point("eq", rows, cols), dtype or torch.get_default_dtype())


@operator("meshgrid")
def _meshgrid(*tensors: Any, indexing: Any = None) -> tuple[Value, ...]:
    parts = sizes_of(tensors)
    shape = [part.shape[0] for part in parts]
    if indexing != "ij":
        raise Unsupported("a meshgrid that is not of ij")
    return tuple(
        expand(reshape(part, [part.shape[0] if axis == k else 1 for axis in range(len(parts))]), shape)
        for k, part in enumerate(parts)
    )


@operator("broadcast_tensors")
def _broadcast_tensors(*tensors: Any) -> tuple[Value, ...]:
    from kernel_core.generator.build import broadcast

    parts = sizes_of(tensors)
    shape = broadcast([part.shape for part in parts])
    return tuple(expand(part, shape) for part in parts)
