"""Grids and arguments of a launch as JSON. Kernels are encoded by number, and Triton's types by name. Lists,
tuples and tensor descriptors are encoded by their elements. The caller encodes all other values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernel_core.gym.channel.kernel_description import DTYPES, JitFunction

STAND_IN_ADDRESS = 1 << 40
"""An address for memory that is not there. Allocators align memory better than Triton requires. It has more
than 32 bits, as others have: Triton takes the type of a number from its size."""
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def options_in(keywords: dict[str, Any]) -> dict[str, int]:
    """The options of a launch among its keyword arguments."""
    return {name: keywords[name] for name in _OPTIONS if isinstance(keywords.get(name), int)}


def encode_argument(
    value: Any, describe: Callable[[JitFunction], int], encode_other: Callable[[Any], Any]
) -> Any:
    """A JSON value, in which `describe` numbers kernels."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.dtype):
        return {"tl": str(value)}
    if isinstance(value, JitFunction):
        return {"jit": describe(value)}
    if isinstance(value, list | tuple):
        return {"l": [encode_argument(item, describe, encode_other) for item in value]}
    if isinstance(value, TensorDescriptor):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"d": {name: encode_argument(part, describe, encode_other) for name, part in parts.items()}}
    return encode_other(value)


def decode_argument(value: Any, kernels: Sequence[Any], decode_other: Callable[[Any], Any]) -> Any:
    """The argument behind it. Triton takes no lists but in descriptors; else what was one is a tuple. Raises
    `TypeError` and `AssertionError` on descriptors that there cannot be."""
    match value:
        case {"jit": int(number)}:
            return kernels[number]
        case {"tl": str(name)}:
            return DTYPES[name]
        case {"l": [*items]}:
            return tuple(decode_argument(item, kernels, decode_other) for item in items)
        case {"d": dict(parts)}:
            decoded = {name: decode_argument(part, kernels, decode_other) for name, part in parts.items()}
            return TensorDescriptor(
                **{name: list(part) if isinstance(part, tuple) else part for name, part in decoded.items()}
            )
    return decode_other(value)


def sizes_of(grid: Any, values: Any) -> tuple[int, ...]:
    """The first three sizes of a grid, which may be computed from the launch's arguments. Triton's launcher
    ignores further ones, and raises `TypeError` for fractional numbers."""
    sizes = grid(values) if callable(grid) else grid
    sizes = (sizes,) if isinstance(sizes, int) else tuple(operator.index(size) for size in sizes)
    if not sizes:
        raise ValueError("a grid has one to three dimensions, and this one has none")
    return sizes[:3]
