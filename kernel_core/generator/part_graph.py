"""Reads a part of a module into a graph, with the values that its names have in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from kernel_core.generator.calls import with_text
from kernel_core.generator.ir import Value
from kernel_core.generator.library_calls import LibraryCalls
from kernel_core.generator.read import Graph, named_numbers
from kernel_core.generator.recorder import Recorder
from kernel_core.generator.shapes import Shape


class NoPart(Exception):
    """Statements that no text can take the place of, whichever products stay torch's."""


def part_graph(
    instance: nn.Module, is_method: bool, function: Any, inputs: dict[str, Any], library: LibraryCalls
) -> Graph:
    """The graph of a function that has the statements of a part.

    `inputs` are values of one run. Raises NoPart, or whatever the statements raise.
    """
    recorder = _PartRecorder(instance, library)
    fresh = {name: _without_memory(value) for name, value in inputs.items()}
    with named_numbers(instance), recorder.running(), torch.no_grad():
        values = [recorder.argument(given, name) for name, given in fresh.items()]
        outputs = function(*([instance] if is_method else []), *values)
    for tensor in fresh.values():
        if isinstance(tensor, torch.Tensor) and recorder.value(tensor).op != "leaf":
            raise NoPart("an input that is changed in place")
    graph = recorder.graph(outputs)
    for leaf in tree_flatten(graph.outputs)[0]:
        if not isinstance(leaf, Value | int | float | Shape | None):
            raise NoPart(f"a result of type {type(leaf).__name__}")
    return graph


def _without_memory(value: Any) -> Any:
    """A tensor of the same shape, strides and type that shares memory with none; other values stay."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    if any(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(value)[0]):
        raise NoPart("an input that is a list of tensors")
    return value


def key_of(names: dict[str, Any], inputs: Sequence[str]) -> str:
    """Text that is the same for calls that have the same text."""
    parts = [_described(names[name]) for name in inputs if name in names and name != "self"]
    if isinstance(names.get("self"), nn.Module):
        for name, module in names["self"].named_modules():
            own = {**module._parameters, **module._buffers, **vars(module)}
            parts.append(f"{name} {type(module).__name__}")
            parts += [f"{key}={_described(value)}" for key, value in own.items() if key[:1] != "_"]
    return "\n".join(parts)


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.stride()} {value.dtype}"
    if isinstance(value, nn.Module):  # a local name of one module, which another call may give to another
        return f"{type(value).__name__} {id(value)}"
    return repr(value) if not callable(value) else getattr(value, "__qualname__", type(value).__name__)


class _PartRecorder(Recorder):
    """Records a part. An axis of size 1 in its inputs has this size in every call, as `keepdim` leaves it."""

    def argument(self, given: Any, name: str) -> Any:
        """An input, with the text of its sizes or of its number."""
        if isinstance(given, torch.Size):
            return Shape(with_text(tuple(given), name, ()))
        if isinstance(given, torch.Tensor):
            return super().argument(given, name)
        return with_text(given, name)

    def _leaf(self, tensor: torch.Tensor, text: str) -> Value:
        value = super()._leaf(tensor, text)
        if 1 not in map(int, value.shape):
            return value
        shape = tuple(1 if int(size) == 1 else size for size in value.shape)
        value = Value(value.op, value.inputs, shape, value.dtype, value.attributes)
        self._values[id(tensor)] = (tensor, value)
        return value
