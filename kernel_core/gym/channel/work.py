"""The bytes and operations of one launch, and of one operator of torch's eager mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.torch_ops import (
    FREE,
    GATHERS,
    formula_of,
    gives_view,
    is_light,
    leaves_unwritten,
    num_programs,
    read_again,
    tensors_in,
)

ELEMENTWISE = ("float", "integer")
"""Kinds of operations that are no products of matrices."""
_PRODUCTS_OF_COMPLEX = 4


@dataclass(frozen=True, slots=True)
class Work:
    """One launch, of a candidate's kernel (`own`) or of a library's.

    `operations` are counted by kind: `float`, `integer`, or a matrix product's type, as torch or Triton calls
    it; each kind has a peak of its own.
    """

    name: str
    own: bool
    bytes_accessed: int
    bytes_distinct: int
    operations: dict[str, int] = field(default_factory=dict)
    padded: dict[str, int] = field(default_factory=dict)
    """The same with the padding of blocks, where that is known; the others are without."""
    copies_only: bool = False
    is_unknown: bool = False
    """The number of operations is unknown."""
    programs: int = 0
    """Programs of the launch's grid, each on one multiprocessor; 0 where there are enough for all."""
    balance: float = 1.0
    """The work of an average program over that of the largest one."""

    @property
    def num_operations(self) -> int:
        """Operations of all kinds."""
        return sum(self.operations.values())

    def to_json(self) -> dict[str, Any]:
        """The work as part of a header."""
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
            self.works += _conversions_of_cudnn(work.name, args, result)
        return result


def operator_work(function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Work | None:
    """The work of one operator from the shapes of what goes in and out; None for views and allocation.

    Each input is read once and each output written once, returned or not. Products and convolutions take
    their operations from torch's own table of formulas; what is known to be light does one an output element.
    Of any other, which may be a product that the table lacks, it is said that its work is unknown.
    """
    schema = function._schema
    given = tensors_in([*args, *kwargs.values()])
    made = tensors_in(result) or written_by(schema, args, kwargs)
    if schema.name in FREE or leaves_unwritten(function) or not made or gives_view(function):
        return None
    out_bytes = sum(_num_bytes(tensor) for tensor in made)
    if schema.name in GATHERS and given:
        in_bytes = out_bytes + sum(_num_bytes(tensor) for tensor in given[1:])
    else:
        in_bytes = sum(_num_bytes(tensor) for tensor in given)
    moved = in_bytes + out_bytes
    formula = formula_of(function)
    if formula is not None:
        products = int(formula(*_with_equal_heads(schema.name, args), **kwargs, out_val=result))
        products *= _PRODUCTS_OF_COMPLEX if made[0].is_complex() else 1
        operations = {str(made[0].dtype).removeprefix("torch."): products}
    else:
        operations = {"float": sum(tensor.numel() for tensor in (*made, *given[:1])) // 2}
    return Work(
        name=schema.name,
        own=False,
        bytes_accessed=moved + read_again(schema.name, given, made),
        bytes_distinct=moved,
        operations=operations,
        is_unknown=formula is None and bool(given) and not is_light(function),
        programs=num_programs(schema.name, args, made),
    )


CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Torch's names of the order with channels last, by rank."""
_GROUPS = 8
"""Place of the number of groups among a convolution's arguments."""


def _conversions_of_cudnn(name: str, args: Sequence[Any], result: Any) -> list[Work]:
    """The copies that cuDNN makes of a convolution's input and result where channels are not last.

    Its kernels for tensor cores compute with channels last (measured in float32 on an H200).
    """
    if name != "aten::convolution" or result.dim() not in CHANNELS_LAST or args[_GROUPS] != 1:
        return []
    order = CHANNELS_LAST[result.dim()]
    if any(operand.is_contiguous(memory_format=order) for operand in args[:2]):
        return []
    return [
        Work("cudnn::convert", False, 2 * num_bytes, 2 * num_bytes, {})
        for num_bytes in (_num_bytes(args[0]), _num_bytes(result))
    ]


def _with_equal_heads(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return an attention's arguments with as many heads of keys and values as of queries.

    Formulas of older versions of torch take no others; a fused attention computes as much for grouped ones.
    """
    if "scaled_dot_product" not in name or name.endswith("backward"):
        return args
    query, *grouped = args[:3]
    heads = [tensor[:, :1].expand(-1, query.shape[1], -1, -1) for tensor in grouped]
    return query, *heads, *args[3:]


def written_by(schema: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors among an operator's arguments that it writes to: some operators return nothing."""
    names = (argument.name for argument in schema.arguments)
    given = dict(zip(names, args, strict=False)) | kwargs
    return [
        tensor
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in tensors_in(given.get(argument.name))
    ]


def _num_bytes(tensor: torch.Tensor) -> int:
    """Bytes of memory behind a tensor: an expanded dimension is read once."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
    return math.prod(sizes) * tensor.element_size()
