"""Operators of torch's decompositions that have other names or arguments than torch's interface."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import cast, full, iota, reshape
from kernel_core.generator.ir import Unsupported, Value
from kernel_core.generator.operators.layout import sizes_of
from kernel_core.generator.operators.parts import getitem
from kernel_core.generator.operators.pointwise import BUILDERS, operator


@operator("slice")
def _slice(x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    at = x.axis(dim)
    if end is not None and int(end) >= int(x.shape[at]):
        end = None
    start = None if start is not None and not hasattr(start, "text") and start == 0 else start
    return getitem(x, tuple([slice(None)] * at + [slice(start, end, step)]))


@operator("convolution")
def _convolution(
    x: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Value:  # fmt: skip
    rank = x.rank - 2
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    rest = (output_padding, groups, dilation) if transposed else (dilation, groups)
    built: Value = BUILDERS[name](x, weight, bias, stride, padding, *rest)
    return built


operator("convert_element_type")(lambda x, dtype: cast(x, dtype))


@operator("to_copy", "_to_copy")
def _to_copy(x: Value, *, dtype: Any = None, **_: Any) -> Value:
    return x if dtype is None else cast(x, dtype)


operator("iota")(
    lambda length, *, start, step, dtype, **_: cast(iota((length,), 0, torch.int64, start, step), dtype)
)


@operator("broadcast_in_dim")
def _broadcast_in_dim(x: Value, shape: Any, dims: Any) -> Value:
    sizes: list[Any] = [1] * len(shape)
    for axis, dim in enumerate(dims):
        sizes[dim] = x.shape[axis]
    built: Value = BUILDERS["expand"](reshape(x, sizes), shape)
    return built


def _filled(shape: Any, value: Any, dtype: Any) -> Value:
    if isinstance(value, Value):
        raise Unsupported("a fill that is a tensor")
    return full(shape, value, dtype)


@operator("full")
def _full(size: Any, fill_value: Any, *, dtype: Any = None, **_: Any) -> Value:
    kind = torch.bool if isinstance(fill_value, bool) else torch.int64
    own = torch.get_default_dtype() if isinstance(fill_value, float) else kind
    return _filled(size, fill_value, dtype or own)


@operator("tensor", "as_tensor")
def _tensor(data: Any, *, dtype: Any = None, **_: Any) -> Value:
    if isinstance(data, Value):
        return data if dtype is None else cast(data, dtype)
    if not isinstance(data, int | float):
        raise Unsupported("a tensor of several literals")
    return _full((), data, dtype=dtype)


operator("new_full")(
    lambda x, size, fill_value, *, dtype=None, **_: _filled(size, fill_value, dtype or x.dtype)
)
operator("new_zeros")(lambda x, *size, dtype=None, **_: full(sizes_of(size), 0, dtype or x.dtype))
operator("new_ones")(lambda x, *size, dtype=None, **_: full(sizes_of(size), 1, dtype or x.dtype))
operator("scalar_tensor")(
    lambda value, *, dtype=None, **_: full((), value, dtype or torch.get_default_dtype())
)
