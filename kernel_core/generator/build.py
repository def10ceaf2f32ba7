"""Makes values: pointwise operators with torch's types and broadcasting, layout, reductions.

Operators that consist of others (`softmax`, `layer_norm`, `huber_loss`) are written with these, so each has
its meaning once, and fusion sees only what it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_core.generator.index import letters
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.names import bind, expands, unify
from kernel_core.generator.operators.pointwise import pointwise
from kernel_core.generator.sizes import host, is_named, is_one, product, without_text

Operand = Any
"""A value or a number."""


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The common shape: that of the first tensor that has it, else sizes other than the literal 1."""
    rank = max(map(len, shapes), default=0)
    result: list[int] = []
    for axis in range(rank):
        chosen: int = 1
        for shape in shapes:
            at = axis - (rank - len(shape))
            if at >= 0 and (is_one(chosen) or (int(chosen) == 1 and int(shape[at]) > 1)):
                chosen = shape[at]
            elif at >= 0 and int(chosen) == int(shape[at]) > 1:
                unify(chosen, shape[at])
        for shape in shapes:
            if (at := axis - (rank - len(shape))) >= 0:
                expands(shape[at], chosen)
        result.append(chosen)
    whole = (shape for shape in shapes if [*map(int, shape)] == [*map(int, result)])
    return tuple(next(whole, result))


def result_type(operands: Sequence[Operand]) -> torch.dtype:
    """Torch's promoted type of tensors and numbers."""
    kinds: list[Any] = []
    for operand in operands:
        if isinstance(operand, Value):
            shape = (1,) * min(operand.rank, 1)
            kinds.append(torch.empty(shape, dtype=operand.dtype, device="meta"))
        else:
            kinds.append(
                float(operand) if isinstance(
                    operand, float,
                ) else bool(operand) if isinstance(operand, bool) else int(operand),
            )  # fmt: skip
    if len(kinds) == 1:
        return kinds[0].dtype if isinstance(kinds[0], torch.Tensor) else torch.float32
    result = kinds[0] if isinstance(kinds[0], torch.Tensor) else torch.tensor(kinds[0])
    dtype = torch.result_type(kinds[0], kinds[1])
    for index in range(2, len(kinds)):
        ranks = [kind.dim() for kind in kinds[:index] if isinstance(kind, torch.Tensor)]
        result = torch.empty((1,) * max(ranks, default=0), dtype=dtype, device="meta")
        dtype = torch.result_type(result, kinds[index])
    return dtype


_OF_TRUTHS = {"logical_and": "bitwise_and", "logical_or": "bitwise_or", "logical_xor": "bitwise_xor"}
"""Operators that need no comparison with 0 where all operands are truth values."""


def point(name: str, *operands: Operand, **named: Operand) -> Value:
    """A pointwise operator of the table, with numbers or values as operands."""
    if all(isinstance(given, Value) and given.dtype is torch.bool for given in operands):
        name = _OF_TRUTHS.get(name, name)
    entry = pointwise()[name]
    if len(operands) > len(entry.parameters):
        raise Unsupported(f"{name} with {len(operands)} arguments")
    given = dict(zip(entry.parameters, operands, strict=False)) | named
    if unknown := set(given) - set(entry.parameters):
        raise Unsupported(f"{name} with {', '.join(sorted(unknown))}")
    values = [given.get(parameter, entry.defaults.get(parameter)) for parameter in entry.parameters]
    if any(not isinstance(value, Value | int | float) for value in values):
        raise Unsupported(f"{name} of {', '.join(type(value).__name__ for value in values)}")
    typed = [v for p, v in zip(entry.parameters, values, strict=True) if p != "condition"]
    dtype = result_type(typed)
    if dtype.is_complex:
        raise Unsupported("complex numbers")
    if entry.kind == "whole" and dtype.is_floating_point:
        raise Unsupported(f"{name} of {dtype}")
    compute = dtype
    if entry.kind == "float" and not dtype.is_floating_point:
        compute = torch.get_default_dtype()
    result = torch.bool if entry.kind == "bool" else compute
    shape = broadcast([value.shape for value in values if isinstance(value, Value)])
    return make("point", tuple(values), shape, result, entry=entry, compute=compute)


def cast(x: Value, dtype: torch.dtype) -> Value:
    """The tensor in another type."""
    if dtype.is_complex or x.dtype.is_complex:
        raise Unsupported("complex numbers")
    if x.dtype == dtype:
        return x
    if x.op == "full" and not is_named(x.inputs[0]):
        convert = float if dtype.is_floating_point else bool if dtype is torch.bool else int
        return full(x.shape, convert(x.inputs[0]), dtype)
    return make("cast", (x,), x.shape, dtype)


def full(shape: Sequence[int], value: Operand, dtype: torch.dtype) -> Value:
    """One number everywhere."""
    return make("full", (value if is_named(value) else without_text(value),), shape, dtype)


def iota(shape: Sequence[int], dim: int, dtype: torch.dtype, first: Operand = 0, step: Operand = 1) -> Value:
    """`first + step * index` of the axis `dim`."""
    return make("iota", (first, step), shape, dtype, dim=dim)


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """The same elements in order; one size may be -1."""
    sizes = list(shape)
    if any(not isinstance(size, int) for size in sizes):
        raise Unsupported("a shape of numbers that are tensors")
    if -1 in [int(size) for size in sizes]:
        at = [int(size) for size in sizes].index(-1)
        rest = sizes[:at] + sizes[at + 1 :]
        sizes[at] = _quotient(x.shape, rest)
    sizes = [bind(size, f"size{axis}") for axis, size in enumerate(sizes)]
    if len(sizes) == x.rank and all(int(a) == int(b) for a, b in zip(sizes, x.shape, strict=True)):
        return x
    return make("reshape", (x,), sizes, x.dtype)


def _quotient(whole: Sequence[int], rest: Sequence[int]) -> int:
    """Product of `whole` without the sizes of `rest`; those of the same expression cancel."""
    left, divisors = list(whole), []
    for divisor in rest:
        match = next((k for k, size in enumerate(left) if host(size) == host(divisor)), None)
        if match is None:
            divisors.append(divisor)
        else:
            left.pop(match)
    below = product(divisors)
    return product(left) if int(below) == 1 else product(left) // below


def permute(x: Value, dims: Sequence[int]) -> Value:
    """Axes in another order."""
    order = tuple(x.axis(dim) for dim in dims)
    if order == tuple(range(x.rank)):
        return x
    return make("permute", (x,), [x.shape[axis] for axis in order], x.dtype, order=order)


def expand(x: Value, shape: Sequence[int]) -> Value:
    """Axes of size 1 repeated; -1 keeps a size."""
    lead = len(shape) - x.rank
    for size, wanted in zip(x.shape, shape[lead:], strict=True):
        expands(size, wanted)
    sizes = [
        x.shape[k - lead] if int(size) == -1 or (k >= lead and not is_one(x.shape[k - lead])) else size
        for k, size in enumerate(shape)
    ]
    if lead == 0 and all(host(a) == host(b) for a, b in zip(sizes, x.shape, strict=True)):
        return x
    return make("expand", (x,), sizes, x.dtype)


def slice_axis(x: Value, dim: int, start: int, length: int, step: int = 1) -> Value:
    """`length` elements of an axis from `start`."""
    shape = list(x.shape)
    shape[dim] = bind(length, f"part_{letters(x.rank)[dim]}")
    return make("slice", (x,), shape, x.dtype, dim=dim, start=start, step=step)


def unsqueeze(x: Value, dim: int) -> Value:
    """A new axis of size 1."""
    at = int(dim) % (x.rank + 1)
    return reshape(x, [*x.shape[:at], 1, *x.shape[at:]])


def reduce(x: Value, kind: str, dims: Any = None, keepdim: bool = False) -> Value:
    """A reduction over some axes, or all: sum, prod, amax, amin, any, all, argmax, argmin."""
    if dims is None or (isinstance(dims, tuple | list) and not dims):
        axes = tuple(range(x.rank))
    else:
        axes = tuple(sorted({x.axis(dim) for dim in (dims if isinstance(dims, tuple | list) else (dims,))}))
    if x.rank == 0:
        x, axes, keepdim = reshape(x, (1,)), (0,), False
    dtype = x.dtype
    if kind in ("sum", "prod") and not dtype.is_floating_point:
        dtype = torch.int64
    elif kind in ("any", "all"):
        dtype = torch.bool
    elif kind in ("argmax", "argmin"):
        dtype = torch.int64
    kept = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    if (
        kind in ("sum", "prod", "any", "all", "argmax", "argmin")
        and dtype is torch.int64
        and x.dtype is torch.bool
    ):
        x = cast(x, torch.int64)
    if all(is_one(x.shape[axis]) for axis in axes):  # a program would have no axis to reduce along
        value = full(kept, 0, dtype) if kind in ("argmax", "argmin") else cast(_copy(x), dtype)
    else:
        value = make("reduce", (x,), kept, dtype, kind=kind, dims=axes)
    return value if keepdim else reshape(value, [s for axis, s in enumerate(x.shape) if axis not in axes])


def _copy(x: Value) -> Value:
    return make("copy", (x,), x.shape, x.dtype)


def count(x: Value, dims: Any) -> int:
    """Number of elements that a reduction goes over."""
    if dims is None or (isinstance(dims, tuple | list) and not dims):
        return product(x.shape)
    axes = {x.axis(dim) for dim in (dims if isinstance(dims, tuple | list) else (dims,))}
    return product(size for axis, size in enumerate(x.shape) if axis in axes)


def as_float(x: Value) -> Value:
    """Integers as torch's default type."""
    return x if x.dtype.is_floating_point else cast(x, torch.get_default_dtype())


def add(x: Operand, other: Operand) -> Value:
    """`x + other`."""
    return point("add_", x, other)


def sub(x: Operand, other: Operand) -> Value:
    """`x - other`."""
    if isinstance(x, Value) and isinstance(other, int) and not is_named(other) and other == 0:
        return x
    return point("sub_", x, other)


def mul(x: Operand, other: Operand) -> Value:
    """`x * other`."""
    return point("mul", x, other)


def div(x: Operand, other: Operand) -> Value:
    """`x / other`."""
    return point("true_divide", x, other)


def mean(x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    """Sum over its count."""
    return div(reduce(as_float(x), "sum", dims, keepdim), count(x, dims))
