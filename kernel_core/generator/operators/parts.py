"""Parts of tensors, elements at indices, and tensors that are joined of parts."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import add, cast, expand, iota, mul, permute, reshape, slice_axis, unsqueeze
from kernel_core.generator.index import letters
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.names import bind
from kernel_core.generator.operators.layout import flatten
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Size, is_one


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


operator("index_select")(
    lambda x, dim, index: gather_rows(x, x.axis(dim), index if index.rank else reshape(index, (1,)))
)


@operator("embedding")
def _embedding(
    input: Value, weight: Value, padding_idx: Any = None, max_norm: Any = None, *_: Any, **__: Any
) -> Value:
    if max_norm is not None:
        raise Unsupported("max_norm")
    return gather_rows(weight, 0, input)


operator("take")(lambda x, index: gather_rows(flatten(x), 0, index, wraps=True))


@operator("gather")
def _gather(x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    return make("gather", (x, index), index.shape, x.dtype, dim=x.axis(dim))


@operator("take_along_dim")
def _take_along_dim(x: Value, indices: Value, dim: Any = None) -> Value:
    if dim is None:
        return _gather(flatten(x), 0, flatten(indices))
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
operator("vstack", "row_stack")(
    lambda tensors: _cat([unsqueeze(tensor, 0) if tensor.rank == 1 else tensor for tensor in tensors], 0)
)


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
