"""Parts: submodules that compute the same, as one problem with the contract of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from kernel_core.optimize.target import Target
from kernel_core.problems.load import parse_problem
from kernel_core.records import Problem, Record

SUITE = "optimize"


class Contract(Record):
    """Calls that a part's kernels take; every other call runs the original."""

    inputs: tuple[str, ...]
    shapes: tuple[tuple[int | str, ...], ...]
    """By input; a name is a free dimension, of at most its size in `free`."""
    dtypes: tuple[str, ...]
    free: dict[str, int]
    arguments: tuple[int, ...]
    """Sizes that construct the kernels' module."""
    weights: dict[str, str]
    """Attribute of the kernels' module to the path in the submodule."""
    weight_dtypes: dict[str, str]
    call: Any
    """Nest of arguments, with the numbers of tensors (`dispatch.template_of`)."""
    result: Any
    """Nest of outputs."""


class Part(Record):
    """Submodules that compute the same at the same shapes, as one problem."""

    problem: Problem
    contract: Contract
    paths: tuple[str, ...]
    """Every place in the module; equal parts are one problem."""
    kind: str
    predicted_ms: float
    gain_ms: float
    """Upper bound at one place, by the profile."""


class RecordedCall(NamedTuple):
    """Arguments and result of a submodule in the example call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


def recorded_calls(target: Target, paths: Sequence[str]) -> dict[str, list[RecordedCall]]:
    """Return the calls of each submodule while the target's example call runs once."""
    calls: dict[str, list[RecordedCall]] = {path: [] for path in paths}

    def record(path: str) -> Any:
        def hook(_: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            calls[path].append(RecordedCall(args, kwargs, result))

        return hook

    handles = [
        target.module.get_submodule(path).register_forward_hook(record(path), with_kwargs=True)
        for path in paths
    ]
    try:
        target.call()
    finally:
        for handle in handles:
            handle.remove()
    return calls


def problem_of(text: str, kind: str) -> Problem:
    """Return the text as a problem, named by the submodule's class and the text's hash."""
    problem = parse_problem(text, id=f"{SUITE}/{kind}", suite=SUITE, family=f"optimize_{kind.lower()}")
    name = f"{kind}_{problem.sha256[:8]}"
    return problem.model_copy(update={"id": f"{SUITE}/{name}", "name": name})
