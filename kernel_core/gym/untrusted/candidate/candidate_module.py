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
from kernel_core.gym.channel.trace_codec import decode


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


def unpack(values: list[Any], slots: list[Any], arena: Any) -> list[Any]:
    """Arguments from a header. The tensors lie at these slots of the arena."""
    tensors = [arena.tensor(Slot.from_json(slot)) for slot in slots]
    return [decode(value, lambda position: tensors[position[0]]) for value in values]


def place(model: torch.nn.Module, device: str, precision: str) -> torch.nn.Module:
    """On the device and at the problem's precision, as KernelBench's evaluator does with both modules."""
    if device != "cpu":
        model = model.to(device)
    return model if precision == "own" else model.to(getattr(torch, precision))
