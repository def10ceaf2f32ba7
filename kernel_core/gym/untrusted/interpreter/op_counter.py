"""Count the operations of interpreted kernels, each kind apart.

Everything that the interpreter's builder makes of blocks is arithmetic, one operation an element, unless it
is known to move elements only. Integers are counted too, for products can be put together from them, with one
exception: what is made of nothing but program numbers, ranges, constants and a launch's own arguments. Those
are addresses and masks. They hold nothing of the inputs, and compilers take most of them out of the loops
that they are written in. A mark says so of a value, and one that lost its mark counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_MARK = "is_address"
_WORD_BYTES = 4
_COMPUTING = ("binary_op", "unary_op", "ternary_op", "cast_impl")
"""Methods that are called from outside the builder too, where they are not named like the others."""
_MEMORY = ("load", "store", "atomic", "descriptor")
"""A value from memory is no address, whatever its own address was made of."""
_MOVING = frozenset(
    f"create_{name}"
    for name in (
        *("reshape", "trans", "expand_dims", "broadcast", "splat", "unsplat", "cat", "join", "split"),
        *("gather", "bitcast", "int_to_ptr", "ptr_to_int", "make_range", "get_program_id"),
        *("get_num_programs", "load", "store", "masked_load", "masked_store", "descriptor_load"),
        *("descriptor_store", "descriptor_gather", "descriptor_scatter", "atomic_load", "atomic_store"),
    )
)
_PASSES = {"X3": 3, "X6": 6}
"""The number of passes of products that are composed of several precisions."""


def install(operations: Counter[str]) -> None:
    """Have the interpreter of this process count into `operations`, for good."""
    builder: Any = InterpreterBuilder
    inside = _Inside()
    for name in dir(builder):
        if name.startswith(("create_", "get_")) or name in _COMPUTING:
            setattr(builder, name, _counting(name, getattr(builder, name), operations, inside))
    builder.create_dot = _counting_dot(builder.create_dot, operations)
    if hasattr(builder, "create_dot_scaled"):
        builder.create_dot_scaled = _counting_scaled_dot(builder.create_dot_scaled, operations)
    for interface in (interpreter.ReduceOps, interpreter.ScanOps):
        interface.apply_impl = _counting_reduction(interface.apply_impl, operations)
    interpreter._implicit_cvt = _marking(interpreter._implicit_cvt)


class _Inside:
    """True if a method of the builder is being run: what it calls of its own is part of it."""

    here = False


def _counting(
    name: str, method: Callable[..., Any], operations: Counter[str], inside: _Inside
) -> Callable[..., Any]:
    counts = name not in _MOVING and not name.startswith(("get_", "create_dot"))
    keeps_marks = not any(part in name for part in _MEMORY)

    def counted(self: Any, *args: Any, **named: Any) -> Any:
        if inside.here:
            return method(self, *args, **named)
        inside.here = True
        try:
            result = method(self, *args, **named)
        finally:
            inside.here = False
        given = [*_handles(args), *_handles(named.values())]
        is_address = keeps_marks and all(hasattr(handle, _MARK) for handle in given)
        for made in _handles([result]):
            if is_address:
                setattr(made, _MARK, True)
            kind = _kind(made)
            if counts and (kind == "float" or not is_address):
                operations[kind] += max(handle.data.size for handle in (made, *given)) * _words(made, kind)
        return result

    return counted


def _handles(values: Any) -> Iterator[TensorHandle]:
    for value in values:
        if isinstance(value, TensorHandle):
            yield value
        elif isinstance(value, list | tuple):
            yield from _handles(value)


def _kind(handle: TensorHandle) -> str:
    # Numbers in bfloat16 and 8-bit floats are kept as integers.
    return "float" if handle.data.dtype.kind == "f" or handle.dtype.scalar.is_floating() else "integer"


def _words(handle: TensorHandle, kind: str) -> int:
    """Integers are computed by words of 32 bits."""
    return -(-handle.data.itemsize // _WORD_BYTES) if kind == "integer" else 1


def _counting_dot(method: Callable[..., Any], operations: Counter[str]) -> Callable[..., Any]:
    def counted(self: Any, left: Any, right: Any, accumulator: Any, precision: Any, *rest: Any) -> Any:
        *batch, rows, inner = left.data.shape
        work = 2 * int(np.prod(batch, dtype=np.int64)) * rows * inner * right.data.shape[-1]
        element, manner = str(left.dtype.scalar), str(precision).upper()
        work *= next((times for end, times in _PASSES.items() if manner.endswith(end)), 1)
        exact = element == "fp32" and "IEEE" in manner
        operations["ieee" if exact else element] += work
        return method(self, left, right, accumulator, precision, *rest)

    return counted


def _counting_scaled_dot(method: Callable[..., Any], operations: Counter[str]) -> Callable[..., Any]:
    def counted(self: Any, left: Any, left_scale: Any, kind: Any, right: Any, *rest: Any) -> Any:
        # Two numbers of four bits share a byte, on either side.
        inner = 2 * max(left.data.shape[-1], right.data.shape[-2])
        operations["bf16"] += 2 * left.data.shape[-2] * inner * right.data.shape[-1]
        return method(self, left, left_scale, kind, right, *rest)

    return counted


def _counting_reduction(method: Callable[..., Any], operations: Counter[str]) -> Callable[..., Any]:
    def counted(self: Any, values: Any) -> Any:
        least = operations.total() + sum(value.handle.data.size for value in values)
        result = method(self, values)
        # A combine function may do more than one operation.
        operations[_kind(values[0].handle)] += max(0, least - operations.total())
        return result

    return counted


def _marking(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A launch's arguments hold nothing of its inputs: they are what was recorded with others."""

    def marked(argument: Any) -> Any:
        converted = convert(argument)
        handle = getattr(converted, "handle", None)
        if isinstance(handle, TensorHandle):
            setattr(handle, _MARK, True)
        return converted

    return marked
