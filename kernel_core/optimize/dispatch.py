"""Kernels in place of submodules: each call that fits the contract runs them, every other the original.

This file needs torch alone: a copy of it is part of each library of winners. A kernel replaces the `forward`
of an instance, so names of weights, state dicts and classes stay as they are.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INSTALLED = "_dojo_kernel"
"""Attribute of a submodule with its own forward and the kernels' module."""


def template_of(value: Any, tensors: list[tuple[str, torch.Tensor]], names: Mapping[int, str] = {}) -> Any:
    """Return a nest with numbers in place of tensors, which are appended to `tensors` with their names.

    Raises TypeError for what is no plain nest.
    """
    if isinstance(value, torch.Tensor):
        for number, (_, known) in enumerate(tensors):
            if known is value:
                return {"tensor": number}
        tensors.append((names.get(id(value), f"x{len(tensors)}"), value))
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if type(value) in (tuple, list):
        return {type(value).__name__: [template_of(part, tensors, names) for part in value]}
    if type(value) is dict:
        return {"dict": {key: template_of(part, tensors, names) for key, part in value.items()}}
    raise TypeError(f"a value of type {type(value).__name__} in a call")


def matched(template: Any, value: Any, tensors: dict[int, torch.Tensor]) -> bool:
    """Return True if a nest has the form of a template; its tensors are put into `tensors` by number."""
    ((kind, inner),) = template.items()
    if kind == "tensor":
        return isinstance(value, torch.Tensor) and tensors.setdefault(inner, value) is value
    if kind == "value":
        return type(value) is type(inner) and value == inner
    if kind == "dict":
        return (
            type(value) is dict
            and value.keys() == inner.keys()
            and all(matched(part, value[key], tensors) for key, part in inner.items())
        )
    return (
        type(value).__name__ == kind
        and len(value) == len(inner)
        and all(matched(part, given, tensors) for part, given in zip(inner, value, strict=True))
    )


def filled(template: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return the nest of a template with its tensors."""
    ((kind, inner),) = template.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "value":
        return inner
    if kind == "dict":
        return {key: filled(part, tensors) for key, part in inner.items()}
    parts = [filled(part, tensors) for part in inner]
    return tuple(parts) if kind == "tuple" else parts


def install(module: nn.Module, make: Callable[[], nn.Module], contract: Mapping[str, Any]) -> None:
    """Run a kernel in place of a submodule's `forward` wherever the contract holds.

    `make` constructs the kernels' module; its weights become those of the submodule.
    """
    original = module.forward
    with torch.device("meta"):
        kernel = make()
    kernel.eval()
    steps_to = {name: path.split(".") for name, path in contract["weights"].items()}
    dtypes = [_dtype(name) for name in contract["dtypes"]]
    weight_dtypes = {weight: _dtype(name) for weight, name in contract["weight_dtypes"].items()}

    def weights_now() -> dict[str, torch.Tensor]:
        """Give the kernels' module the weights that the submodule has now."""
        weights = {name: _attribute(module, steps) for name, steps in steps_to.items()}
        for name, weight in weights.items():
            place: dict[str, Any] = kernel._parameters if name in kernel._parameters else kernel._buffers
            if place.get(name) is not weight:
                place[name] = weight
        return weights

    weights_now()  # so that `torch.compile` meets a kernel that does not change

    def forward(*args: Any, **kwargs: Any) -> Any:
        tensors: dict[int, torch.Tensor] = {}
        if module.training or not matched(contract["call"], (args, kwargs), tensors):
            return original(*args, **kwargs)
        inputs = [tensors[number] for number in range(len(tensors))]
        weights = weights_now()
        if any(weight.dtype != weight_dtypes[name] for name, weight in weights.items()):
            return original(*args, **kwargs)
        if not _fits(inputs, dtypes, list(weights.values()), contract):
            return original(*args, **kwargs)
        outputs = kernel(*inputs)
        return filled(contract["result"], outputs if isinstance(outputs, tuple | list) else [outputs])

    module.__dict__[INSTALLED] = (original, kernel)
    module.__dict__["forward"] = forward


def uninstall(module: nn.Module) -> None:
    """Give a submodule its own `forward` back."""
    if (installed := module.__dict__.pop(INSTALLED, None)) is not None:
        module.__dict__["forward"] = installed[0]


def install_library(
    model: nn.Module, folder: Path, package: str, names: Sequence[str] | None = None
) -> list[str]:
    """Install the kernels of a library's folder in a model; return the paths of the replaced submodules."""
    paths = []
    for name, entry in json.loads((folder / "contracts.json").read_text()).items():
        if names is None or name in names:
            kernel = importlib.import_module(f"{package}.{name}")
            for path in entry["paths"]:
                install(
                    model.get_submodule(path),
                    partial(kernel.ModelNew, *entry["arguments"]),
                    entry["contract"],
                )
                paths.append(path)
    return paths


def uninstall_library(model: nn.Module) -> list[str]:
    """Give every submodule its own `forward` back; return their paths."""
    paths = [path for path, module in model.named_modules() if INSTALLED in module.__dict__]
    for path in paths:
        uninstall(model.get_submodule(path))
    return paths


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name.removeprefix("torch."))
    return dtype


def _attribute(module: nn.Module, steps: Sequence[str]) -> Any:
    value: Any = module
    for step in steps:
        value = getattr(value, step)
    return value


def _fits(
    inputs: Sequence[torch.Tensor],
    dtypes: Sequence[torch.dtype],
    weights: Sequence[torch.Tensor],
    contract: Mapping[str, Any],
) -> bool:
    """Return True for shapes, types and devices of the contract, without gradients or autocast."""
    device = inputs[0].device
    if device.type != "cuda" and not _INTERPRETED:
        return False
    if torch.is_autocast_enabled(device.type):
        return False
    every = (*inputs, *weights)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in every):
        return False
    if any(tensor.device != device for tensor in every):
        return False
    sizes: dict[str, int] = {}
    for tensor, shape, dtype in zip(inputs, contract["shapes"], dtypes, strict=True):
        if tensor.dtype != dtype or tensor.dim() != len(shape):
            return False
        for size, wanted in zip(tensor.shape, shape, strict=True):
            if isinstance(wanted, str):
                if not 0 < size <= contract["free"][wanted] or sizes.setdefault(wanted, size) != size:
                    return False
            elif size != wanted:
                return False
    return True
