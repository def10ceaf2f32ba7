"""A candidate's host code where nothing is computed: which kernels it launches, on how many programs.

Runs in a caged process of its own, on the meta device. What it says is the candidate's word: unlike in a
replay, its host code runs here (docs/decisions/0014).
"""

from __future__ import annotations

import contextlib
import inspect
import math
import socket
from pathlib import Path
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from kernel_core.gym import wire
from kernel_core.gym.arena import DTYPES, Slot
from kernel_core.gym.capture import MAX_OPERATIONS
from kernel_core.gym.runner import CANDIDATE_FILE, describe_error, import_candidate, place, unpack
from kernel_core.gym.target import answer_for
from kernel_core.gym.work import OperatorCounter

_DEVICE = "meta"


class _Enough(BaseException):
    """There are more launches than need be written down."""


def rehearse(channel: socket.socket, cage: dict[str, Any]) -> None:
    """One request: the text, and arguments and inputs of several sizes; one answer with a pass for each."""
    answer_for(cage["gpu"])
    header = wire.receive(channel).header
    path = Path.cwd() / CANDIDATE_FILE
    path.write_text(header["source"])
    launches: list[list[Any]] = []
    _write_launches_down(launches)
    passes = []
    try:
        module = import_candidate(header["source"], path)
        for size in header["sizes"]:
            launches.clear()
            arguments, inputs = (unpack(size[part], _Nothing()) for part in ("arguments", "inputs"))
            with torch.device(_DEVICE), torch.no_grad():
                model = module.ModelNew(*arguments)
                if isinstance(model, torch.nn.Module):
                    model = place(model, _DEVICE, header["precision"])
                passes.append(_pass(model, inputs, launches))
    except BaseException as error:
        wire.send(channel, {"failed": "rehearsal", **describe_error(error, path)})
        return
    wire.send(channel, {"passes": passes})


def _pass(model: Any, inputs: list[Any], launches: list[list[Any]]) -> dict[str, Any]:
    with OperatorCounter() as counter, contextlib.suppress(_Enough):
        model(*inputs)
    works = [work.to_json() for work in counter.works[:MAX_OPERATIONS]]
    return {"launches": list(launches), "works": works}


class _Nothing:
    """In the place of an arena: tensors without contents."""

    def tensor(self, slot: Slot) -> torch.Tensor:
        """As it would lie there."""
        return torch.empty(slot.shape, dtype=DTYPES[slot.dtype], device=_DEVICE)


def _write_launches_down(launches: list[list[Any]]) -> None:
    """Instead of doing them: each kernel's name, and the number of its programs."""

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if warmup:
            return
        if len(launches) >= MAX_OPERATIONS:
            raise _Enough
        sizes = grid(_bound(self, args, kwargs)) if callable(grid) else grid
        sizes = (sizes,) if isinstance(sizes, int) else tuple(int(size) for size in sizes)
        launches.append([self.fn.__name__, math.prod(sizes)])

    function: Any = InterpretedFunction
    function.run = run


def _bound(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a grid may be computed from: constants by their values."""
    bound = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function.fn).parameters.values()
        if parameter.default is not parameter.empty
    }
    bound |= dict(zip(function.arg_names, args, strict=False)) | kwargs
    return {name: value.value if isinstance(value, tl.constexpr) else value for name, value in bound.items()}
