"""Graph of values: each is immutable, has axes and a type, and names the operator that makes it.

| operator | inputs | attributes |
|---|---|---|
| `leaf` | | `text`: host expression of a tensor |
| `call` | tensors | `text`: host call with `{0}` for tensors; `path`: indices of one of several results |
| `point` | tensors and numbers | `entry`: pointwise operator of the table |
| `cast`, `copy` | tensor | |
| `full`, `iota` | number; first, step | `dim` of `iota`: value grows along it |
| `reshape`, `permute`, `expand`, `slice`, `flip`, `roll`, `pad`, `cat` | tensors | layout |
| `transposed` | tensor | `order`: the host's copy with the axes in another order |
| `gather` | tensor, index of the result's shape | `dim` |
| `take` | tensor, indices of one shape | `dims` that are indexed; `place` of the indices' axes; `wraps` |
| `scatter` | tensor, source, its indices | `kind`: `store`, `sum`, `amax`, `amin`; `axes`, `bounded` |
| `reduce` | tensor | `kind`, `dims` |
| `partial` | tensor | `kind`, `dims`, `part`: reduction of parts of so many elements, first of two stages |
| `select` | tensor | indices of the first of each row's order, largest or `smallest` first |
| `scan` | tensor | `kind`, `dim` |
| `dot` | a, b | of the last two dimensions, the first ones broadcast |
| `attention` | q, transposed k, v, masks | `product` of q and k, `scores` that are made of it |
| `conv` | x, weight | as `window`, with `groups`, their `channels` of x, `transposed`, `is_tiled` |
| `window` | x | `kind`, `kernel`, `stride`, `padding`, `dilation`, `is_partial` |

A `call` of a convolution's layer has its `groups`; with a bias also `unbiased`, its text without it, and
`of_layer`, its weight and bias. A `copy` or `call` with `channels_last` has its channels last in memory.
`axes` of a `scatter` has for each axis of the tensor `("index", k)` or `("axis", k)` of the source; if
`bounded`, indices beyond the end are dropped. A `conv` that `is_tiled` has its tensors in
memory. A `window` that `is_partial` may reach beyond the last edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

import torch

from kernel_core.generator.sizes import of_axis

LAYOUT = ("reshape", "permute", "expand", "slice", "flip", "roll", "pad", "cat", "gather", "take")
CHEAP = ("point", "cast", "copy", "full", "iota", *LAYOUT)
"""Operators that are computed where they are read."""


class Unsupported(Exception):
    """A form of an operator that the table does not have; the call stays torch's."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph."""

    op: str
    inputs: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["attributes"][name]
        except KeyError:
            raise AttributeError(f"a value of {self.op} has no {name}") from None

    @property
    def tensors(self) -> tuple[Value, ...]:
        """Inputs that are tensors."""
        return tuple(operand for operand in self.inputs if isinstance(operand, Value))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def axis(self, dim: int) -> int:
        """An axis by a number that may be negative."""
        return int(dim) % max(self.rank, 1)


def is_point(value: object, name: str) -> TypeGuard[Value]:
    """Return True for a value of the pointwise operator of a name."""
    return isinstance(value, Value) and value.op == "point" and value.entry.name == name


def stored(value: Value) -> Value:
    """The value that a reshape shares memory with."""
    while value.op == "reshape" or (
        value.op == "expand" and list(map(int, value.shape)) == list(map(int, value.inputs[0].shape))
    ):
        value = value.inputs[0]
    return value


Item = TypeVar("Item")


def is_channels_last(value: Value) -> bool:
    """True for a tensor whose channels, its second axis, stand last in memory."""
    return "channels_last" in value.attributes


def in_memory_order(items: Sequence[Item], value: Value) -> list[Item]:
    """Items of the axes of a tensor, in the order of the axes in memory."""
    return [items[0], *items[2:], items[1]] if is_channels_last(value) else [*items]


def memory_format(rank: int, has_channels_last: bool = True) -> str:
    """Host argument for the order of axes."""
    order = f"channels_last{'_3d' * (rank > 4)}" if has_channels_last else "contiguous_format"
    return f"memory_format=torch.{order}"


ORIGIN: ContextVar[tuple[int, str]] = ContextVar("ORIGIN", default=(0, ""))
"""Number and name of the call of torch's that is being read."""


def make(op: str, inputs: tuple[Any, ...], shape: Any, dtype: torch.dtype, **attributes: Any) -> Value:
    """A value with its attributes, and with the call that it comes from as `origin`."""
    attributes.setdefault("origin", ORIGIN.get())
    return Value(op, inputs, tuple(map(of_axis, shape)), dtype, MappingProxyType(attributes))


def walk(outputs: tuple[Value, ...]) -> list[Value]:
    """All values that the outputs need, producers first."""
    seen: dict[int, Value] = {}

    def visit(value: Value) -> Iterator[Value]:
        stack: list[tuple[Value, Iterator[Value]]] = [(value, iter(value.tensors))]
        while stack:
            top, rest = stack[-1]
            child = next((tensor for tensor in rest if id(tensor) not in seen), None)
            if child is not None:
                stack.append((child, iter(child.tensors)))
                continue
            stack.pop()
            if id(top) not in seen:
                seen[id(top)] = top
                yield top

    return [value for output in outputs if id(output) not in seen for value in visit(output)]


def readers_of(values: Sequence[Value]) -> dict[int, list[Value]]:
    """Values that read each one of `values`, by its id; those that read it twice stand there twice."""
    readers: dict[int, list[Value]] = {id(value): [] for value in values}
    for value in values:
        for tensor in value.tensors:
            readers[id(tensor)].append(value)
    return readers


def rebuilt(
    outputs: Sequence[Value], change: Callable[[Value, Value, dict[int, Value]], Value]
) -> list[Value]:
    """The outputs with each value made anew of new ones; `change` gets the value, its copy and all copies."""
    made: dict[int, Value] = {}
    for value in walk(tuple(outputs)):
        inputs = tuple(
            made[id(operand)] if isinstance(operand, Value) else operand for operand in value.inputs
        )
        is_same = all(a is b for a, b in zip(inputs, value.inputs, strict=True))
        new = value if is_same else Value(value.op, inputs, value.shape, value.dtype, value.attributes)
        made[id(value)] = change(value, new, made)
    return [made[id(output)] for output in outputs]
