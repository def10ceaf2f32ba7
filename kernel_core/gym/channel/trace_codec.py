"""Values of a trace, or of a trial, as JSON: tensors by numbers, dtypes and special floats by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernel_core.gym.channel.shared_arena import DTYPES, dtype_name
from kernel_core.gym.channel.torch_ops import SPARSE, members_of

Encode = Callable[[torch.Tensor], list[Any]]
Decode = Callable[[list[Any]], torch.Tensor]

_LAYOUTS = {str(layout).removeprefix("torch."): layout for layout in (torch.strided, *SPARSE)}
_MEMORY_FORMATS = {
    str(memory_format).removeprefix("torch."): memory_format
    for memory_format in (
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
    )
}


class NotEncodable(Exception):
    """A value that a trace cannot hold."""


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """A storage as a tensor of bytes that shares its memory."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def views_in(value: Any) -> Iterator[list[Any]]:
    """All views of storages in a value of a trace."""
    if isinstance(value, dict):
        if isinstance(value.get("t"), list):
            yield value["t"]
        else:
            yield from views_in(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from views_in(item)


def views_of_launch(launch: dict[str, Any]) -> Iterator[list[Any]]:
    """All views of storages that a launch may reach: its arguments, and what addresses among them are of."""
    return views_in([launch["args"], launch.get("reaches", [])])


def encode(value: Any, tensor: Encode) -> Any:
    """A JSON value for an argument of an operator, a launch or a module. Raises `NotEncodable`."""
    if isinstance(value, torch.Tensor) and (members := members_of(value)):
        return {"sparse": [encode(part, tensor) for part in (value.layout, *members, value.shape)]}
    if isinstance(value, torch.Tensor):
        return {"t": tensor(value)}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, list | tuple):
        kind = "l" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, tensor) for item in value]}
    if isinstance(value, torch.dtype) and dtype_name(value) in DTYPES:
        return {"dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, torch._C.Generator):
        seed, kind = value.initial_seed(), value.device.type
        if torch.equal(torch._C.Generator(kind).manual_seed(seed).get_state(), value.get_state()):
            return {"generator": [kind, seed]}
        raise NotEncodable("a generator that has drawn numbers already")
    if isinstance(value, type) and vars(torch.nn).get(name := getattr(value, "__name__", "")) is value:
        return {"layer": name}
    raise NotEncodable(f"a value of type {type(value).__name__}")


def decode(value: Any, tensor: Decode) -> Any:
    """The value behind `encode`'s JSON. Raises `KeyError`, `TypeError` or `ValueError` on anything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if not isinstance(value, dict) or [type(part) for part in value.values()] not in ([str], [list]):
        raise ValueError(f"not a value of a trace: {str(value)[:80]}")
    if "t" in value:
        return tensor(value["t"])
    if "a" in value:
        (target,) = value["a"]
        return tensor(target["t"]).data_ptr()
    if "sparse" in value:
        layout, *parts = (decode(item, tensor) for item in value["sparse"])
        if layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(*parts, check_invariants=True)
        return torch.sparse_compressed_tensor(*parts, layout=layout, check_invariants=True)
    if "l" in value:
        return [decode(item, tensor) for item in value["l"]]
    if "tuple" in value:
        return tuple(decode(item, tensor) for item in value["tuple"])
    if "float" in value:
        return float(value["float"])
    if "dtype" in value:
        return DTYPES[value["dtype"]]
    if "layer" in value and isinstance(layer := getattr(torch.nn, value["layer"], None), type):
        return layer
    if "device" in value:
        return torch.device({"cpu": "cpu", "cuda": "cuda"}[value["device"]])
    if "generator" in value:
        kind, seed = value["generator"]
        return torch._C.Generator({"cpu": "cpu", "cuda": "cuda"}[kind]).manual_seed(int(seed))
    if "layout" in value:
        return _LAYOUTS[value["layout"]]
    if "memory_format" in value:
        return _MEMORY_FORMATS[value["memory_format"]]
    raise ValueError(f"not a value of a trace: {value}")
