"""Runs a harvested definition in a cage: which inputs it takes, and whether it makes a problem.

A trial is one set of sizes and inputs. The first that passes every check decides; then large sizes are run
without memory (torch's meta device), or truly where that fails and they are small enough.
"""

from __future__ import annotations

import json
import math
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from kernel_core.gym.channel import framing

MOST_PARAMETERS = 50_000_000
_MOST_ELEMENTS = 1 << 26
_FEWEST_ELEMENTS = 1 << 16
_MOST_REAL_ELEMENTS = 1 << 22
_MOST_FLOPS = 2e12
_CONSTANT = 1e-6
_STAGES = (
    "cannot be constructed", "does not run", "returns no floating-point tensor",
    "returns a view of its input", "writes into its input", "is not finite", "is nearly constant",
    "returns its input", "is random", "keeps a state", "ignores an input", "has no large size that fits",
)  # fmt: skip


class _TrialRefused(Exception):
    """Raised with the reason when a trial fails."""


def serve_trials(channel: socket.socket, cage: dict[str, Any]) -> None:
    """Answer one request: `source`, `takes_first`, `trials` and each trial's `large` sizes."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    request = framing.receive(channel).header
    framing.send(channel, json.loads(json.dumps(_answer(request))))


def warm_up() -> None:
    """Import what trials need once, before any child is forked: the meta device brings a compiler along."""
    body = _executed(
        "import torch, torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return nn.functional.gelu(nn.Conv2d(4, 4, 3)(x).sum(1, keepdim=True) + x.mean())\n"
    )
    with torch.no_grad():
        _fits(body, {}, ["torch.randn(64, 4, 64, 64)"], [])


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    bodies: dict[str, dict[str, Any]] = {}
    furthest = -1
    for position, trial in enumerate(request["trials"]):
        try:
            first, inputs, shapes = _small(bodies, request, trial)
            large = _large_sizes(bodies[first], {**trial, "inputs": inputs})
            return {
                "trial": position, "takes_first": first == "takes_first", "inputs": inputs,
                "large": large, **shapes,
            }  # fmt: skip
        except _TrialRefused as refused:
            furthest = max(furthest, _STAGES.index(str(refused)))
        if furthest == len(_STAGES) - 1:
            break
    return {"reason": _STAGES[furthest] if furthest >= 0 else "no inputs to try"}


def _small(
    bodies: dict[str, dict[str, Any]], request: Mapping[str, Any], trial: Mapping[str, Any]
) -> tuple[str, list[str], dict[str, Any]]:
    """Choose the text to run, its inputs, and the shapes."""
    for which in ("source", "takes_first"):
        if which not in bodies:
            bodies[which] = _executed(request[which])
        try:
            output, inputs = _proven(bodies[which], trial["small"], trial["inputs"], trial["init"])
        except _TrialRefused as refused:
            if which == "source" and str(refused) == "returns no floating-point tensor":
                continue
            raise
        expressions = list(trial["inputs"])
        if output.numel() == 1:
            # A mean over many numbers of one distribution is a constant; a drawn scale shows in it.
            expressions = [
                re.sub(r"^torch\.randn", "torch.rand(()) * torch.randn", expression)
                for expression in expressions
            ]
            _proven(bodies[which], trial["small"], expressions, trial["init"])
        kept = len(inputs) == 1 and tuple(inputs[0].shape) == tuple(output.shape)
        return which, expressions, {"keeps_shape": kept}
    raise _TrialRefused("returns no floating-point tensor")


def _executed(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "problem"}
    try:
        exec(compile(source, "<harvested>", "exec", dont_inherit=True), names)
    except Exception as error:
        raise _TrialRefused("cannot be constructed") from error
    return names


def _proven(
    body: dict[str, Any], sizes: Mapping[str, Any], inputs: Sequence[str], init: Sequence[str]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the output and the inputs of a trial that passes every check. Raises `_TrialRefused`."""
    names = {**body, **sizes}
    given = _drawn(names, inputs, 0)
    kept = [tensor.clone() for tensor in given]
    module = _built(names, init)
    output = _run(module, given, 2)
    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.numel():
        raise _TrialRefused("returns no floating-point tensor")
    if any(output.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() for tensor in given):
        raise _TrialRefused("returns a view of its input")
    if any(not torch.equal(tensor, original) for tensor, original in zip(given, kept, strict=True)):
        raise _TrialRefused("writes into its input")
    if not bool(output.isfinite().all()):
        raise _TrialRefused("is not finite")
    if output.numel() > 1 and float(output.double().std()) < _CONSTANT:
        raise _TrialRefused("is nearly constant")
    if any(_same(output, tensor) for tensor in given):
        raise _TrialRefused("returns its input")
    again = _built(names, init)
    if not _same(output, _run(again, given, 3)):
        raise _TrialRefused("is random")
    if not _same(output, _run(again, given, 3)):
        raise _TrialRefused("keeps a state")
    others = _drawn(names, inputs, 9)
    for position, redrawn in enumerate(others):
        changed = [redrawn if position == index else tensor for index, tensor in enumerate(given)]
        if _same(output, _run(module, changed, 2)):
            raise _TrialRefused("ignores an input")
    return output, given


def _same(first: object, second: object) -> bool:
    if (
        not isinstance(first, torch.Tensor)
        or not isinstance(second, torch.Tensor)
        or first.shape != second.shape
    ):
        return False
    return torch.allclose(first.double(), second.double(), rtol=1e-5, atol=1e-7, equal_nan=True)


def _drawn(names: dict[str, Any], inputs: Sequence[str], seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [eval(expression, names) for expression in inputs]


def _built(names: dict[str, Any], init: Sequence[str]) -> Any:
    torch.manual_seed(1)
    try:
        return names["Model"](*(eval(expression, names) for expression in init))
    except Exception as error:
        raise _TrialRefused("cannot be constructed") from error


def _run(module: Any, inputs: Sequence[torch.Tensor], seed: int) -> object:
    torch.manual_seed(seed)
    try:
        return module(*inputs)
    except Exception as error:
        raise _TrialRefused("does not run") from error


def _large_sizes(body: dict[str, Any], trial: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for each variant the first sizes that fit; raise `_TrialRefused` where none has any."""
    fitting: list[dict[str, Any]] = []
    for variant in trial["large"]:
        for sizes in variant:
            if sizes not in fitting and _fits(body, sizes, trial["inputs"], trial["init"]):
                fitting.append(sizes)
                break
    if not fitting:
        raise _TrialRefused(_STAGES[-1])
    return fitting


def _fits(body: dict[str, Any], sizes: Mapping[str, Any], inputs: Sequence[str], init: Sequence[str]) -> bool:
    names = {**body, **sizes}
    try:
        with torch.device("meta"):
            given = [eval(expression, names) for expression in inputs]
            elements = sum(tensor.numel() for tensor in given)
            if not _FEWEST_ELEMENTS <= elements <= _MOST_ELEMENTS:
                return False
            module = names["Model"](*(eval(expression, names) for expression in init))
            if sum(parameter.numel() for parameter in module.parameters()) > MOST_PARAMETERS:
                return False
            with FlopCounterMode(display=False) as counted:
                output = module(*given)
    except Exception:
        return _runs_truly(names, inputs, init)
    if output.numel() > _MOST_ELEMENTS:
        return False
    return bool(counted.get_total_flops() <= _MOST_FLOPS)


def _runs_truly(names: dict[str, Any], inputs: Sequence[str], init: Sequence[str]) -> bool:
    with torch.device("meta"):
        if sum(eval(expression, names).numel() for expression in inputs) > _MOST_REAL_ELEMENTS:
            return False
    try:
        output = _run(_built(names, init), _drawn(names, inputs, 0), 2)
    except _TrialRefused:
        return False
    return isinstance(output, torch.Tensor) and math.isfinite(float(output.double().sum()))
