"""Arithmetic on bfloat16 in Triton's interpreter, which keeps such values as 16-bit integers.

NumPy has no bfloat16, so the interpreter loads, stores and converts these values, but would add, compare or
reduce their bits as integers. Here every computation widens them to float32, and rounds its result once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_COMPUTING = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot", "create_erf", "create_rsqrt")


def compute_bfloat16() -> None:
    """Patch the interpreter of this process for good."""
    builder = interpreter.InterpreterBuilder
    for name in _COMPUTING:
        setattr(builder, name, _widened(getattr(builder, name)))
    reduction = interpreter.ReduceScanOpInterface
    reduction.apply = _reduced_wide(reduction.apply)


def _widened(method: Callable[..., Any]) -> Callable[..., Any]:
    def compute(self: Any, *arguments: Any) -> Any:
        if not any(_is_bfloat16(one) for one in arguments):
            return method(self, *arguments)
        # The last operand has the type of the result: the accumulator of a product, either side of a sum.
        last = [one for one in arguments if isinstance(one, interpreter.TensorHandle)][-1]
        wide = [self.cast_impl(one, tl.float32) if _is_bfloat16(one) else one for one in arguments]
        result = method(self, *wide)
        is_number = result.data.dtype == np.float32
        return self.cast_impl(result, tl.bfloat16) if is_number and _is_bfloat16(last) else result

    return compute


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar == tl.bfloat16


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
