"""Arithmetic in which the interpreter of Triton 3.6 follows NumPy, and a GPU does not.

Later versions compute most of it as here. It is set whatever the version: nothing depends on a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle


def compute_as_a_gpu() -> None:
    """Patch the interpreter of this process for good."""
    builder: Any = interpreter.InterpreterBuilder
    builder.create_minnumf = lambda self, left, right: self.binary_op(left, right, np.fmin)
    builder.create_maxnumf = lambda self, left, right: self.binary_op(left, right, np.fmax)
    _clamp_numbers(builder)
    _wrap_single_bits(builder)
    _multiply_bit_patterns(builder)
    _drop_outside_of_bins(builder)
    builder.get_all_ones_value = _all_ones


def _clamp_numbers(builder: Any) -> None:
    """A NaN becomes the lower bound, unless the kernel asks for NaNs."""
    clamp = builder.create_clampf

    def create_clampf(self: Any, value: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
        if propagate_nan != ir.PROPAGATE_NAN.NONE:
            return clamp(self, value, low, high, propagate_nan)
        return self.create_minnumf(self.create_maxnumf(value, low), high)

    builder.create_clampf = create_clampf


def _wrap_single_bits(builder: Any) -> None:
    """The sum of two conditions is one bit, and two of them are 0."""
    compute = builder.binary_op

    def binary_op(self: Any, left: Any, right: Any, operate: Any) -> Any:
        if not left.data.dtype == right.data.dtype == np.bool_:
            return compute(self, left, right, operate)
        bits = operate(left.data.astype(np.int8), right.data.astype(np.int8)) & 1
        return TensorHandle(bits.astype(np.bool_), left.dtype.scalar)

    builder.binary_op = binary_op


def _multiply_bit_patterns(builder: Any) -> None:
    """The upper half of a product takes signed numbers for unsigned ones."""
    multiply = builder.create_umulhi

    def create_umulhi(self: Any, left: Any, right: Any) -> Any:
        unsigned = f"u{left.data.itemsize}"
        sides = (TensorHandle(side.data.view(unsigned), side.dtype) for side in (left, right))
        return TensorHandle(multiply(self, *sides).data.view(left.data.dtype), left.dtype.scalar)

    builder.create_umulhi = create_umulhi


def _drop_outside_of_bins(builder: Any) -> None:
    """A value past the last bin is counted in none."""
    count = builder.create_histogram

    def create_histogram(self: Any, values: Any, bins: int, mask: Any) -> Any:
        inside = values.data < bins if mask is None else mask.data & (values.data < bins)
        return count(self, values, bins, TensorHandle(inside, tl.int1))

    builder.create_histogram = create_histogram


def _all_ones(self: Any, kind: Any) -> Any:
    """`~x` needs it, also for unsigned numbers."""
    numpy_kind = interpreter._get_np_dtype(kind)
    return TensorHandle(np.invert(np.zeros(1, dtype=numpy_kind)), kind.scalar)
