"""Cache the types that Triton's interpreter computes. They are most of its time: at a CPU's sizes blocks are
small, and each operation makes several types of a few Python objects each.

No result changes. Everything that follows from a shape is made once. Operands of one type and shape are not
broadcast. No operation is repeated in 64 bits for a check that only debugging has.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def make_types_quick() -> None:
    """Patch the interpreter of this process for good."""
    builder: Any = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
    _look_types_up_once()
    _make_shapes_once()
    _leave_equals_alone()


def _look_types_up_once() -> None:
    """Asked several times an operation, the interpreter makes a table of all types each time."""
    original = interpreter._get_np_dtype
    pointer, known = np.dtype(np.uint64), {}

    def get_np_dtype(kind: Any) -> Any:
        scalar = kind.scalar
        if scalar.is_ptr():
            return pointer
        if scalar.name not in known:
            known[scalar.name] = original(scalar)
        return known[scalar.name]

    interpreter._get_np_dtype = get_np_dtype


def _make_shapes_once() -> None:
    """Blocks and tensors of one shape share it."""
    block, tensor = tl.block_type, tl.tensor
    make_block = block.__init__
    blocks: dict[tuple[int, ...], tuple[Any, int]] = {}
    tensors: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def block_of(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(getattr(size, "value", size) for size in shape)
        if any(type(size) is not int for size in sizes) or sizes not in blocks:
            make_block(self, element_ty, shape)
            blocks[sizes] = self.shape, self.numel
        self.element_ty = element_ty
        self.shape, self.numel = blocks[sizes]

    def tensor_of(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        sizes = tuple(type.shape) if type.is_block() else ()
        if sizes not in tensors:
            shape = tl.tuple([tl.constexpr(size) for size in sizes])
            tensors[sizes] = shape, tl.constexpr(math.prod(sizes))
        self.shape, self.numel = tensors[sizes]

    block.__init__, tensor.__init__ = block_of, tensor_of
    block.name = functools.cached_property(lambda self: f"<{self.shape}, {self.element_ty}>")
    block.name.__set_name__(block, "name")


def _leave_equals_alone() -> None:
    """Most operands have one type and one shape already."""
    semantic: Any = TritonSemantic
    check, spread = semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value

    def check_types(
        self: Any,
        left: Any,
        right: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        are_tensors = isinstance(left, tl.tensor) and isinstance(right, tl.tensor)
        # Quotients of half precision are computed in single precision.
        if are_tensors and not div_or_mod and left.dtype is right.dtype and not left.dtype.is_ptr():
            return self.broadcast_impl_value(left, right)
        return check(self, left, right, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    def spread_to_one(self: Any, left: Any, right: Any) -> Any:
        if left.type.is_block() and right.type.is_block() and left.type.shape is right.type.shape:
            return left, right
        return spread(self, left, right)

    semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value = check_types, spread_to_one
