"""Arithmetic on bfloat16 in Triton's interpreter, which keeps such values as 16-bit integers.

NumPy has no bfloat16, so the interpreter loads, stores and converts these values, but would add, compare or
reduce their bits as integers. Here every computation widens them to float32, and rounds its result once.
Casts to bfloat16 round to the nearest, as on a GPU; the interpreter would cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_COMPUTING = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot", "create_erf", "create_rsqrt")


def compute_bfloat16() -> None:
    """Patch the interpreter of this process for good."""
    builder: Any = interpreter.InterpreterBuilder
    builder.cast_impl = _rounded(builder.cast_impl)
    if not hasattr(builder, "get_bf16"):  # older versions have no such constants
        builder.get_bf16 = lambda self, number: self.cast_impl(self.get_fp32(number), tl.bfloat16)
    for name in _COMPUTING:
        setattr(builder, name, _widened(getattr(builder, name)))
    reduction = interpreter.ReduceScanOpInterface
    reduction.apply = _reduced_wide(reduction.apply)


def _rounded(cast: Callable[..., Any]) -> Callable[..., Any]:
    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        is_number = source.dtype.scalar != tl.bfloat16 and not source.dtype.scalar.is_ptr()
        if not is_number or kind.scalar != tl.bfloat16:
            return cast(self, source, kind)
        numbers = torch.from_numpy(np.ascontiguousarray(source.data))
        bits = numbers.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        return interpreter.TensorHandle(bits.reshape(source.data.shape), kind.scalar)

    return cast_impl


def _widened(method: Callable[..., Any]) -> Callable[..., Any]:
    def compute(self: Any, *arguments: Any) -> Any:
        if not any(_is_bfloat16(one) for one in arguments):
            return method(self, *arguments)
        # The last operand has the type of the result, as the accumulator of a product or either side of a
        # sum.
        last = [one for one in arguments if isinstance(one, interpreter.TensorHandle)][-1]
        wide = [self.cast_impl(one, tl.float32) if _is_bfloat16(one) else one for one in arguments]
        result = method(self, *wide)
        is_number = result.data.dtype == np.float32
        return self.cast_impl(result, tl.bfloat16) if is_number and _is_bfloat16(last) else result

    return compute


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar.name == tl.bfloat16.name


def _reduced_wide(apply: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(self: Any, given: Any) -> Any:
        if not isinstance(given, tuple) or not any(one.dtype == tl.bfloat16 for one in given):
            return apply(self, given)
        results = apply(
            self, tuple(_cast(one, tl.float32) if one.dtype == tl.bfloat16 else one for one in given)
        )
        return tuple(_cast(one, tl.bfloat16) if one.dtype == tl.float32 else one for one in results)

    return reduce


def _cast(tensor: Any, dtype: tl.dtype) -> Any:
    handle = interpreter.interpreter_builder.cast_impl(tensor.handle, dtype)
    return tl.tensor(handle, tl.block_type(dtype, list(tensor.shape)) if tensor.type.is_block() else dtype)
