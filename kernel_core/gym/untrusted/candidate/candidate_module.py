"""A candidate's text as a module, and what its classes and passes are given."""

from __future__ import annotations

import io
import linecache
import sys
import types
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym.channel.shared_arena import Slot


def import_candidate(source: str, path: Path) -> Any:
    """The candidate's text, which lies at `path` too, as a module."""
    module = types.ModuleType("candidate")
    module.__file__ = str(path)
    sys.modules["candidate"] = module
    # Triton reads kernels from this file: the same text, whatever encoding it names.
    lines = io.StringIO(source, newline=None).readlines()
    linecache.cache[str(path)] = (len(source), None, lines, str(path))
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def unpack(values: list[Any], arena: Any) -> list[Any]:
    """Arguments from a header: `{"slot": …}` lies in the arena, a list is a list, the rest is itself."""
    unpacked: list[Any] = []
    for value in values:
        if isinstance(value, dict) and "slot" in value:
            unpacked.append(arena.tensor(Slot.from_json(value["slot"])))
        elif isinstance(value, dict) and "float" in value:
            unpacked.append(float(value["float"]))
        elif isinstance(value, dict) and "tuple" in value:
            unpacked.append(tuple(unpack(value["tuple"], arena)))
        elif isinstance(value, dict) and "dtype" in value:
            unpacked.append(getattr(torch, value["dtype"]))
        elif isinstance(value, dict) and "layer" in value:
            unpacked.append(getattr(torch.nn, value["layer"]))
        elif isinstance(value, list):
            unpacked.append(unpack(value, arena))
        else:
            unpacked.append(value)
    return unpacked


def place(model: torch.nn.Module, device: str, precision: str) -> torch.nn.Module:
    """On the device and at the problem's precision, as KernelBench's evaluator does with both modules."""
    if device != "cpu":
        model = model.to(device)
    return model if precision == "own" else model.to(getattr(torch, precision))
