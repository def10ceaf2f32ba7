"""Layout and indexing: maps of indices, folded into the loads of the kernels that read them."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import (
    add,
    cast,
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
from kernel_core.generator.index import letters
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.names import bind
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Size, host, is_one, product


def sizes_of(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes that come one by one or as one tuple."""
    if len(given) == 1 and isinstance(given[0], tuple | list):
        return tuple(given[0])
    return given


@operator("view", "reshape", "_unsafe_view")
def _view(x: Value, *shape: Any, **named: Any) -> Value:
    sizes = sizes_of(shape or tuple(named.values()))
    if any(isinstance(size, torch.dtype) for size in sizes):
        raise Unsupported("a view as another type")
    return reshape(x, sizes)


operator("view_as", "reshape_as")(lambda x, other: reshape(x, other.shape))


@operator("flatten")
def _flatten(x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if x.rank == 0:
        return reshape(x, (1,))
    first, last = x.axis(start_dim), x.axis(end_dim)
    return reshape(x, [*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]])


operator("ravel")(lambda x: _flatten(x))


@operator("unflatten")
def _unflatten(x: Value, dim: int, sizes: Any) -> Value:
    at, sizes = x.axis(dim), list(sizes)
    inner = reshape(make("leaf", (), (x.shape[at],), x.dtype, text=""), sizes).shape
    return reshape(x, [*x.shape[:at], *inner, *x.shape[at + 1 :]])


operator("unsqueeze")(lambda x, dim: unsqueeze(x, dim))


@operator("squeeze")
def _squeeze(x: Value, *dims: Any, dim: Any = None) -> Value:
    given = sizes_of(dims) if dims else () if dim is None else sizes_of((dim,))
    axes = {x.axis(dim) for dim in given} if given else set(range(x.rank))
    return reshape(x, [size for axis, size in enumerate(x.shape) if axis not in axes or int(size) != 1])


operator("permute")(lambda x, *dims, **named: permute(x, sizes_of(dims or tuple(named.values()))))


@operator("transpose", "swapaxes", "swapdims")
def _transpose(x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(x.rank))
    if x.rank:
        first, second = x.axis(dim0), x.axis(dim1)
        order[first], order[second] = order[second], order[first]
    return permute(x, order)


operator("t", "T", "numpy_T")(lambda x: permute(x, tuple(reversed(range(x.rank)))))
operator("mT", "adjoint", "mH", "H")(lambda x: _transpose(x, -1, -2))


@operator("movedim", "moveaxis")
def _movedim(x: Value, source: Any, destination: Any) -> Value:
    sources = [x.axis(dim) for dim in (source if isinstance(source, tuple | list) else (source,))]
    targets = [
        x.axis(dim) for dim in (destination if isinstance(destination, tuple | list) else (destination,))
    ]
    rest = iter(axis for axis in range(x.rank) if axis not in sources)
    back = dict(zip(targets, sources, strict=True))
    return permute(x, [back[axis] if axis in back else next(rest) for axis in range(x.rank)])


operator("expand", "broadcast_to")(lambda x, *sizes, **_: expand(x, sizes_of(sizes)))
operator("expand_as")(lambda x, other: expand(x, other.shape))


@operator("repeat", "tile")
def _repeat(x: Value, *repeats: Any, dims: Any = None) -> Value:
    times = list(sizes_of(repeats) if repeats else dims)
    times = [1] * (x.rank - len(times)) + times
    lead = len(times) - x.rank
    shape = [*([1] * lead), *x.shape]
    value = reshape(x, [part for size in shape for part in (1, size)])
    value = expand(value, [part for n, size in zip(times, shape, strict=True) for part in (n, size)])
    return reshape(value, [size * n for n, size in zip(times, shape, strict=True)])


@operator("repeat_interleave")
def _repeat_interleave(x: Value, repeats: Any, dim: Any = None, **_: Any) -> Value:
    if isinstance(repeats, Value):
        raise Unsupported("repeats that are a tensor")
    if dim is None:
        x, dim = _flatten(x), 0
    at = x.axis(dim)
    value = reshape(x, [*x.shape[: at + 1], 1, *x.shape[at + 1 :]])
    value = expand(value, [*x.shape[: at + 1], repeats, *x.shape[at + 1 :]])
    return reshape(value, [*x.shape[:at], x.shape[at] * repeats, *x.shape[at + 1 :]])


@operator("flip")
def _flip(x: Value, *dims: Any, **named: Any) -> Value:
    axes = tuple({x.axis(dim) for dim in sizes_of(dims or tuple(named.values()))})
    return make("flip", (x,), x.shape, x.dtype, dims=axes) if axes else x


operator("fliplr")(lambda x: _flip(x, 1))
operator("flipud")(lambda x: _flip(x, 0))


@operator("rot90")
def _rot90(x: Value, k: int = 1, dims: Any = (0, 1)) -> Value:
    first, second = dims
    turns = int(k) % 4
    if turns == 0:
        return x
    if turns == 2:
        return _flip(x, first, second)
    return (
        _flip(_transpose(x, first, second), first)
        if turns == 1
        else _transpose(_flip(x, first), first, second)
    )


@operator("roll")
def _roll(x: Value, shifts: Any, dims: Any = None) -> Value:
    if dims is None or dims == ():
        return reshape(_roll(_flatten(x), shifts, 0), x.shape)
    for shift, dim in zip(
        *(given if isinstance(given, tuple | list) else (given,) for given in (shifts, dims)), strict=True
    ):
        x = make("roll", (x,), x.shape, x.dtype, dim=x.axis(dim), shift=shift)
    return x


@operator("narrow")
def _narrow(x: Value, dim: int, start: int, length: int) -> Value:
    if isinstance(start, Value):
        raise Unsupported("a start that is a tensor")
    at = x.axis(dim)
    return slice_axis(x, at, start + x.shape[at] if start < 0 else start, length)


@operator("select")
def _select(x: Value, dim: int, index: int) -> Value:
    if isinstance(index, Value):
        raise Unsupported("an index that is a tensor")
    at = x.axis(dim)
    value = slice_axis(x, at, index + x.shape[at] if index < 0 else index, 1)
    return reshape(value, [*x.shape[:at], *x.shape[at + 1 :]])


def _sliced(x: Value, dim: int, part: slice) -> Value:
    size, step = x.shape[dim], 1 if part.step is None else part.step
    if part.start is None and part.stop is None and int(step) == 1:
        return x
    start: Any = 0 if part.start is None else part.start
    stop: Any = size if part.stop is None else part.stop
    start = max(size + start, 0) if start < 0 else start if start <= size else size
    stop = size + stop if stop < 0 else stop if stop <= size else size
    length = stop - start
    if int(step) != 1:
        length = (
            -(-int(length) // int(step)) if not isinstance(length, Size) else (length + (step - 1)) // step
        )
    return slice_axis(x, dim, start, length if length > 0 else 0, step)


@operator("getitem")
def getitem(x: Value, key: Any) -> Value:
    """`x[key]` with numbers, slices, new axes, and tensors of indices."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(part, list | bool) for part in keys):
        raise Unsupported("an index that is a list or a truth value")
    indexed = sum(1 for part in keys if part is not None and part is not Ellipsis)
    if Ellipsis in [part for part in keys if not isinstance(part, Value)]:
        at = next(k for k, part in enumerate(keys) if part is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (x.rank - indexed)
    if sum(isinstance(part, Value) for part in keys) > 1:
        from kernel_core.generator.operators.indexing import take

        if any(not isinstance(part, Value) and part != slice(None) for part in keys):
            raise Unsupported("indices that are tensors beside parts")
        return take(x, [part if isinstance(part, Value) else None for part in keys])
    dim = 0
    for part in keys:
        if part is None:
            x = unsqueeze(x, dim)
        elif isinstance(part, slice):
            x = _sliced(x, dim, part)
        elif isinstance(part, Value):
            if part.dtype is torch.bool or part.dtype.is_floating_point:
                raise Unsupported("a mask as an index")
            x = gather_rows(x, dim, part, wraps=True)
            dim += part.rank - 1
        else:
            x = _select(x, dim, part)
            dim -= 1
        dim += 1
    return x


def gather_rows(x: Value, dim: int, index: Value, wraps: bool = False) -> Value:
    """Slices of an axis by an index of any rank; its axes take the place of `dim`."""
    shape = [*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]]
    return make("take", (x, index), shape, x.dtype, dims=(dim,), place=dim, wraps=wraps)


@operator("unfold")
def _unfold(x: Value, dimension: int, size: Any, step: Any) -> Value:
    if x.rank == 0 or not isinstance(size, int) or not isinstance(step, int):  # `F.unfold` has other forms
        raise Unsupported("windows of several axes, or of a number")
    at = x.axis(dimension)
    windows = bind((x.shape[at] - size) // step + 1, "windows")
    place = add(mul(iota((windows, 1), 0, torch.int64), step), iota((size,), 0, torch.int64))
    value = gather_rows(x, at, place)
    return permute(value, [axis for axis in range(value.rank) if axis != at + 1] + [at + 1])


@operator("index_select")
def _index_select(x: Value, dim: int, index: Value) -> Value:
    return gather_rows(x, x.axis(dim), index if index.rank else reshape(index, (1,)))


@operator("embedding")
def _embedding(
    input: Value, weight: Value, padding_idx: Any = None, max_norm: Any = None, *_: Any, **__: Any
) -> Value:
    if max_norm is not None:
        raise Unsupported("max_norm")
    return gather_rows(weight, 0, input)


operator("take")(lambda x, index: gather_rows(_flatten(x), 0, index, wraps=True))


@operator("gather")
def _gather(x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    return make("gather", (x, index), index.shape, x.dtype, dim=x.axis(dim))


@operator("take_along_dim")
def _take_along_dim(x: Value, indices: Value, dim: Any = None) -> Value:
    if dim is None:
        return _gather(_flatten(x), 0, _flatten(indices))
    at = x.axis(dim)
    shape = [
        b if axis == at or is_one(a) else a
        for axis, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True))
    ]
    index = expand(indices, shape)
    return _gather(
        expand(x, [x.shape[at] if axis == at else size for axis, size in enumerate(shape)]), at, index
    )


@operator("split", "split_with_sizes")
def _split(x: Value, split_size: Any, dim: int = 0) -> tuple[Value, ...]:
    at = x.axis(dim)
    if isinstance(split_size, int):
        number = -(-int(x.shape[at]) // int(split_size))
        parts: list[Any] = [split_size] * number
        parts[-1] = x.shape[at] - split_size * (number - 1)
    else:
        parts = list(split_size)
    values, start = [], 0
    for part in parts:
        values.append(slice_axis(x, at, start, part))
        start = start + part
    return tuple(values)


@operator("chunk", "tensor_split")
def _chunk(x: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    at = x.axis(dim)
    if int(x.shape[at]) % int(chunks):
        raise Unsupported("chunks of two sizes")
    part = x.shape[at] // chunks
    return tuple(slice_axis(x, at, part * k, part) for k in range(int(chunks)))


operator("unbind")(lambda x, dim=0: tuple(_select(x, dim, k) for k in range(int(x.shape[x.axis(dim)]))))


@operator("cat", "concat", "concatenate")
def _cat(tensors: Any, dim: int = 0, **_: Any) -> Value:
    parts = [tensor for tensor in tensors if tensor.shape != (0,)]
    at = parts[0].axis(dim)
    total: Any = 0
    dtype = parts[0].dtype
    for part in parts:
        total = total + part.shape[at]
        dtype = torch.promote_types(dtype, part.dtype)
    if len(parts) == 1:
        return parts[0]
    total = bind(total, f"joined_{letters(parts[0].rank)[at]}")
    shape = [*parts[0].shape[:at], total, *parts[0].shape[at + 1 :]]
    return make("cat", tuple(cast(part, dtype) for part in parts), shape, dtype, dim=at)


@operator("stack")
def _stack(tensors: Any, dim: int = 0) -> Value:
    at = int(dim) % (tensors[0].rank + 1)
    return _cat([unsqueeze(tensor, at) for tensor in tensors], at)


operator("hstack")(lambda tensors: _cat(tensors, 0 if tensors[0].rank == 1 else 1))


@operator("vstack", "row_stack")
def _vstack(tensors: Any) -> Value:
    return _cat([unsqueeze(tensor, 0) if tensor.rank == 1 else tensor for tensor in tensors], 0)


@operator("pad", "constant_pad_nd")
def pad(x: Value, pad: Any, value: Any = None, mode: Any = "constant") -> Value:
    """Sizes before and behind each axis, the last one first."""
    if isinstance(value, str):  # F.pad has the mode first
        value, mode = (None if mode == "constant" else mode), value
    before, shape = [0] * x.rank, list(x.shape)
    for k in range(len(pad) // 2):
        axis = x.rank - 1 - k
        before[axis] = pad[2 * k]
        shape[axis] = shape[axis] + pad[2 * k] + pad[2 * k + 1]
    if all(isinstance(a, int) and int(a) == 0 for a in pad):
        return x
    fill: Any = 0 if value is None else value
    shape = [bind(size, f"padded_{letter}") for size, letter in zip(shape, letters(x.rank), strict=True)]
    return make("pad", (x,), shape, x.dtype, before=tuple(before), value=fill, mode=mode)


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


@operator("pixel_shuffle")
def _pixel_shuffle(x: Value, upscale_factor: int) -> Value:
    *lead, c, h, w = x.shape
    r, n = upscale_factor, len(lead)
    value = reshape(x, [*lead, c // (r * r), r, r, h, w])
    value = permute(value, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return reshape(value, [*lead, c // (r * r), h * r, w * r])


@operator("pixel_unshuffle")
def _pixel_unshuffle(x: Value, downscale_factor: int) -> Value:
    *lead, c, h, w = x.shape
    r, n = downscale_factor, len(lead)
    value = reshape(x, [*lead, c, h // r, r, w // r, r])
    value = permute(value, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return reshape(value, [*lead, c * r * r, h // r, w // r])


@operator("channel_shuffle")
def _channel_shuffle(x: Value, groups: int) -> Value:
    n, c, *space = x.shape
    value = reshape(x, [n, groups, c // groups, *space])
    return reshape(_transpose(value, 1, 2), x.shape)


operator("outer", "ger")(lambda x, vec2: mul(unsqueeze(x, 1), vec2))
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
