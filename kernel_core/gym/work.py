"""What one launch moves and computes, and the same for an operator of torch's eager mode."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from kernel_core.gym.dispatch import LightDispatchMode

_FREE = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
        *("_local_scalar_dense", "lift", "lift_fresh", "_unsafe_view", "_reshape_alias"),
    )
)

GATHERS = ("aten::embedding", "aten::gather", "aten::index", "aten::index_select", "aten::take")
"""Operators that read as much of their first input as they write."""


_PRODUCTS_OF_COMPLEX = 4


@dataclass(frozen=True, slots=True)
class Work:
    """One launch, of a candidate's kernel (`own`) or of a library's.

    `dot_flops` are those of matrix products, whose peak depends on `dot_dtype`; `flops` all others.
    """

    name: str
    own: bool
    bytes_accessed: int
    bytes_distinct: int
    flops: int
    dot_flops: int = 0
    dot_dtype: str = ""
    padded_flops: int = 0
    """All operations with the padding of blocks, where that is known; the others are without."""
    copies_only: bool = False

    def to_json(self) -> dict[str, Any]:
        """As it travels in a header."""
        return asdict(self)


class OperatorCounter(LightDispatchMode):
    """While active, appends the work of each operator to `works`."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[Work] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        work = operator_work(function, args, kwargs or {}, result)
        if work is not None:
            self.works.append(work)
        return result


def operator_work(function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Work | None:
    """The work of one operator from the shapes of what goes in and out; None for views and allocation.

    Each input is read once and each output written once, returned or not. Products and convolutions take
    their operations from torch's own table of formulas; anything else does one an output element.
    """
    schema = function._schema
    given = _tensors([*args, *kwargs.values()])
    made = _tensors(result) or written_by(schema, args, kwargs)
    is_view = not schema.is_mutable and any(value.alias_info is not None for value in schema.returns)
    if schema.name in _FREE or not made or is_view:
        return None
    out_bytes = sum(_num_bytes(tensor) for tensor in made)
    if schema.name in GATHERS and given:
        in_bytes = out_bytes + sum(_num_bytes(tensor) for tensor in given[1:])
    else:
        in_bytes = sum(_num_bytes(tensor) for tensor in given)
    formula = flop_registry.get(function._overloadpacket)
    products = int(formula(*args, **kwargs, out_val=result)) if formula is not None else 0
    if made[0].is_complex():
        products *= _PRODUCTS_OF_COMPLEX
    elements = 0 if products else sum(tensor.numel() for tensor in (*made, *given[:1])) // 2
    moved = in_bytes + out_bytes
    dtype = str(made[0].dtype).removeprefix("torch.")
    return Work(
        name=schema.name,
        own=False,
        bytes_accessed=moved,
        bytes_distinct=moved,
        flops=elements,
        dot_flops=products,
        dot_dtype=dtype if products else "",
    )


def written_by(schema: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors among an operator's arguments that it writes to: some operators return nothing."""
    names = (argument.name for argument in schema.arguments)
    given = dict(zip(names, args, strict=False)) | kwargs
    return [
        tensor
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in _tensors(given.get(argument.name))
    ]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _num_bytes(tensor: torch.Tensor) -> int:
    """Bytes of memory behind a tensor: an expanded dimension is read once."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
    return math.prod(sizes) * tensor.element_size()
