"""Outputs of any nesting as a flat list of leaves and a description of the nesting."""

from __future__ import annotations

from typing import Any

import torch

_MAX_DEPTH = 16
_COLUMNS = 4096
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_HOOKS = ("__torch_function__", "__torch_dispatch__")
"""By these a class of tensors answers for torch's operators."""


def flatten(value: Any, depth: int = 0) -> tuple[Any, list[Any]]:
    """Return the nesting as JSON (`"*"` for a leaf) and the leaves, in order. A Python number is a tensor of
    one element; None among others is no leaf."""
    if value is None and depth:
        return None, []
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        parts = [flatten(item, depth + 1) for item in value]
        return [shape for shape, _ in parts], [leaf for _, leaves in parts for leaf in leaves]
    if depth < _MAX_DEPTH and isinstance(value, dict):
        keys = sorted(value, key=str)
        parts = [flatten(value[key], depth + 1) for key in keys]
        nesting = {str(key): shape for key, (shape, _) in zip(keys, parts, strict=True)}
        return nesting, [leaf for _, leaves in parts for leaf in leaves]
    if isinstance(value, bool | int | float):
        value = torch.tensor(value)
    return "*", [_without_its_mark(value)]


def _without_its_mark(value: Any) -> Any:
    """A tensor of a class that only marks it, as one of torch's. A class that answers for its operators may
    work when it is read, and stays as it is."""
    kind = type(value)
    if not isinstance(value, torch.Tensor) or kind in _PLAIN:
        return value
    if any(_function(kind, name) is not _function(torch.Tensor, name) for name in _HOOKS):
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.as_subclass(value, torch.Tensor)


def _function(kind: Any, name: str) -> Any:
    method = getattr(kind, name)
    return getattr(method, "__func__", method)


def describe_leaf(leaf: Any) -> list[Any]:
    """The kind of a leaf: `["tensor", dtype, shape]`, or the name of another type."""
    if type(leaf) in _PLAIN:
        return ["tensor", str(leaf.dtype).removeprefix("torch."), list(leaf.shape)]
    return ["other", type(leaf).__name__[:60]]


def bytes_in_order(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes; a tensor of one element may have the stride 0, with which torch gives no bytes."""
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if two tensors of one type hold the same bytes (NaN equals NaN, 0 differs from -0)."""
    left_bytes, other = bytes_in_order(left), bytes_in_order(right)
    if left_bytes.numel() % 8 == 0 and not (left_bytes.storage_offset() % 8 or other.storage_offset() % 8):
        left_bytes, other = left_bytes.view(torch.int64), other.view(torch.int64)
    return torch.equal(left_bytes, other)


Fingerprint = tuple[torch.Tensor, ...]


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """Sums of a tensor's bytes, taken as integers, by rows and by columns of a table, and the few that fill
    no row. It is read twice, and what is read needs no memory beside itself."""
    raw = bytes_in_order(tensor)
    num_rows = raw.numel() // (8 * _COLUMNS)
    body, rest = raw[: num_rows * 8 * _COLUMNS], raw[num_rows * 8 * _COLUMNS :]
    table = body.view(torch.int64).view(num_rows, _COLUMNS)
    return table.sum(0), table.sum(1), rest.clone()


def is_same(first: Fingerprint, other: Fingerprint) -> bool:
    """Return True if two fingerprints of tensors of one form are equal."""
    return all(torch.equal(left, right) for left, right in zip(first, other, strict=True))
