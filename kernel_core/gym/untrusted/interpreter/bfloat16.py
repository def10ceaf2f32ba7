"""Arithmetic on bfloat16 in Triton's interpreter, which keeps such values as 16-bit integers.

NumPy has no bfloat16, so the interpreter loads, stores and converts these values, but would add, compare or
reduce their bits as integers. Here every computation widens them to float32, and rounds its result once.
Casts to bfloat16 round to the nearest, as on a GPU; the interpreter would cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl
from triton._C.libtriton import interpreter as _interpreter
from triton._C.libtriton import ir
from triton.runtime import interpreter

from kernel_core.gym.untrusted.interpreter.instructions import instruction

_COMPUTING = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot", "create_erf", "create_rsqrt")


def compute_bfloat16() -> None:
    """Patch the interpreter of this process for good."""
    builder: Any = interpreter.InterpreterBuilder
    builder.cast_impl = _rounded(builder.cast_impl)
    if not hasattr(builder, "get_bf16"):  # older versions have no such constants
        builder.get_bf16 = lambda self, number: self.cast_impl(self.get_fp32(number), tl.bfloat16)
    for name in _COMPUTING:
        setattr(builder, name, _widened(getattr(builder, name)))
    builder.create_atomic_rmw = _added_in_turn(builder.create_atomic_rmw)
    reduction = interpreter.ReduceScanOpInterface
    reduction.apply = _reduced_wide(reduction.apply)


def _rounded(cast: Callable[..., Any]) -> Callable[..., Any]:
    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        is_number = source.dtype.scalar != tl.bfloat16 and not source.dtype.scalar.is_ptr()
        if not is_number or kind.scalar != tl.bfloat16:
            return cast(self, source, kind)
        return interpreter.TensorHandle(_narrow(source.data).reshape(source.data.shape), kind.scalar)

    return cast_impl


def _widened(method: Callable[..., Any]) -> Callable[..., Any]:
    def compute(self: Any, *arguments: Any) -> Any:
        if not any(_is_bfloat16(argument) for argument in arguments):
            return method(self, *arguments)
        # The last operand has the type of the result, as the accumulator of a product or either side of a
        # sum.
        last = [argument for argument in arguments if isinstance(argument, interpreter.TensorHandle)][-1]
        wide = [
            self.cast_impl(argument, tl.float32) if _is_bfloat16(argument) else argument
            for argument in arguments
        ]
        result = method(self, *wide)
        is_number = result.data.dtype == np.float32
        return self.cast_impl(result, tl.bfloat16) if is_number and _is_bfloat16(last) else result

    return compute


def _added_in_turn(atomic: Callable[..., Any]) -> Callable[..., Any]:
    """Atomic additions, each rounded to bfloat16, as `atom.add.noftz.bf16` of compute capability 9.0."""

    def create_atomic_rmw(self: Any, kind: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if not _is_bfloat16(value) or kind != ir.ATOMIC_OP.FADD:
            return atomic(self, kind, pointers, value, mask, *rest)
        addresses, bits, active = np.broadcast_arrays(pointers.data, value.data, mask.data)
        pending = np.flatnonzero(active)
        before = np.zeros(addresses.size, dtype=np.uint16)
        while pending.size:  # lanes with an address of their own; then the next lanes with the same addresses
            _, firsts = np.unique(addresses.ravel()[pending], return_index=True)
            now = pending[firsts]
            there, every = addresses.ravel()[now], np.ones(now.size, dtype=np.bool_)
            old = _interpreter.load(there, every, np.zeros(now.size, dtype=np.uint16), np.dtype(np.uint16))
            total = _wide(old) + _wide(bits.ravel()[now])
            _interpreter.store(there, _narrow(total), every)
            before[now] = old
            pending = np.delete(pending, firsts)
        return interpreter.TensorHandle(before.reshape(addresses.shape), value.dtype.scalar)

    return create_atomic_rmw


def _wide(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@instruction
def _narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    rounded = torch.from_numpy(np.ascontiguousarray(numbers)).to(torch.bfloat16)
    return rounded.view(torch.int16).numpy().view(np.uint16)


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar.name == tl.bfloat16.name


def _reduced_wide(apply: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(self: Any, given: Any) -> Any:
        if not isinstance(given, tuple) or not any(tensor.dtype == tl.bfloat16 for tensor in given):
            return apply(self, given)
        results = apply(
            self,
            tuple(_cast(tensor, tl.float32) if tensor.dtype == tl.bfloat16 else tensor for tensor in given),
        )
        return tuple(
            _cast(tensor, tl.bfloat16) if tensor.dtype == tl.float32 else tensor for tensor in results
        )

    return reduce


def _cast(tensor: Any, dtype: tl.dtype) -> Any:
    handle = interpreter.interpreter_builder.cast_impl(tensor.handle, dtype)
    return tl.tensor(handle, tl.block_type(dtype, list(tensor.shape)) if tensor.type.is_block() else dtype)
