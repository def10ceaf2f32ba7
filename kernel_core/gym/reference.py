"""A problem at its run sizes, executed by the judge: secret inputs, weights and expected outputs."""

from __future__ import annotations

import copy
import hashlib
import random
from dataclasses import dataclass
from typing import Any

import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.inputs import Draw, redraw
from kernel_core.gym.runner import CONSTRUCTION_SEED
from kernel_core.gym.structure import flatten
from kernel_core.problems.source import resize
from kernel_core.records import Constant, Problem
from kernel_core.store import digest_of


@dataclass(frozen=True, slots=True)
class Expected:
    """One output: what it must look like, its value, and how far honest fp32 arithmetic strays from it."""

    dtype: str
    shape: tuple[int, ...]
    value: torch.Tensor
    honest_error: torch.Tensor | float
    """By element: what the reference's own arithmetic strays on values of about this size."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One draw of inputs and what the reference makes of it."""

    draw: Draw
    inputs: list[Any]
    nesting: Any
    expected: tuple[Expected, ...]
    changes_inputs: bool
    """The reference itself writes to its inputs, so a candidate may."""


class Reference:
    """An executed problem. `trial` advances the module's own state, as repeated calls of it would."""

    def __init__(self, problem: Problem, sizes: dict[str, Constant] | None) -> None:
        self.problem = problem
        self.sizes = dict(problem.cpu_constants) if sizes is None else dict(sizes)
        self.key = f"{problem.sha256}:{digest_of(self.sizes)}"
        self.source = resize(problem, self.sizes).source if self.sizes else problem.source
        self.namespace = execute_problem(self.source, problem.id)
        torch.manual_seed(CONSTRUCTION_SEED)
        self.arguments = list(self._call("get_init_inputs"))
        torch.manual_seed(CONSTRUCTION_SEED)
        self.module = self._construct(self.arguments)
        self.state = {
            name: value.detach().clone()
            for name, value in (*self.module.named_parameters(), *self.module.named_buffers())
        }
        self._exact = self._double()

    def trial(self, seed: int, draw: Draw, exact: bool = True) -> Trial:
        """Inputs drawn under a seed, and the expected outputs: in float64 where that is possible, or, not
        `exact`, in the reference's own arithmetic. Raises `NotAProblem` when it fails."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            inputs = list(self._call("get_inputs"))
            inputs = [redraw(value, draw) for value in inputs]
            given = copy.deepcopy(inputs)
            nesting, plain = flatten(self._forward(self.module, given, seed))
            true = self._exact_leaves(inputs, seed, plain) if exact else plain
        expected = tuple(_expected(leaf, one, self.problem) for leaf, one in zip(plain, true, strict=True))
        changed = any(
            isinstance(one, torch.Tensor) and not torch.equal(one, other)
            for one, other in zip(inputs, given, strict=True)
        )
        return Trial(draw, inputs, nesting, expected, changed)

    def inputs_that_matter(self) -> tuple[int, ...]:
        """Positions of the tensor inputs without which the output would be another."""
        module = copy.deepcopy(self.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(CONSTRUCTION_SEED)
            first, second = list(self._call("get_inputs")), list(self._call("get_inputs"))
            _, base = flatten(self._forward(module, copy.deepcopy(first), CONSTRUCTION_SEED))
            found = []
            for index, value in enumerate(first):
                if not isinstance(value, torch.Tensor):
                    continue
                changed = copy.deepcopy([*first[:index], second[index], *first[index + 1 :]])
                _, leaves = flatten(self._forward(module, changed, CONSTRUCTION_SEED))
                if any(not torch.equal(a, b) for a, b in zip(base, leaves, strict=False)):
                    found.append(index)
        return tuple(found)

    def _exact_leaves(self, inputs: list[Any], seed: int, plain: list[Any]) -> list[Any]:
        if self._exact is None:
            return plain
        wide = [_to_double(value) for value in copy.deepcopy(inputs)]
        try:
            _, exact = flatten(self._forward(self._exact, wide, seed))
        except Exception:
            # Some modules name a dtype inside; their own precision is then the best there is.
            self._exact = None
            return plain
        return exact if len(exact) == len(plain) else plain

    def _forward(self, module: Any, inputs: list[Any], seed: int) -> Any:
        torch.manual_seed(seed)
        try:
            with torch.no_grad():
                return module(*inputs)
        except Exception as error:
            raise NotAProblem(
                f"the reference of {self.problem.id} fails on its own inputs: {type(error).__name__}: {error}"
            ) from error

    def _double(self) -> Any:
        try:
            return copy.deepcopy(self.module).double()
        except Exception:
            # A module that cannot be copied or widened serves in its own precision.
            return None

    def _construct(self, arguments: list[Any]) -> Any:
        try:
            return self.namespace["Model"](*arguments)
        except Exception as error:
            raise NotAProblem(f"the Model of {self.problem.id} cannot be constructed: {error}") from error

    def _call(self, name: str) -> Any:
        try:
            return self.namespace[name]()
        except Exception as error:
            raise NotAProblem(f"{name}() of {self.problem.id} fails: {error}") from error


def execute_problem(source: str, problem_id: str) -> dict[str, Any]:
    """The module's namespace. A problem's text is trusted, unlike a candidate's."""
    namespace: dict[str, Any] = {"__name__": "problem"}
    try:
        exec(compile(source, f"<{problem_id}>", "exec", dont_inherit=True), namespace)
    except Exception as error:
        raise NotAProblem(f"{problem_id} does not execute: {type(error).__name__}: {error}") from error
    return namespace


def derive_seed(seed: int, *labels: str | int) -> int:
    """A seed for one purpose, from which the others cannot be told."""
    text = ":".join(str(part) for part in (seed, *labels))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def _to_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, list | tuple):
        return type(value)(_to_double(item) for item in value)
    return value


def _expected(plain: Any, exact: Any, problem: Problem) -> Expected:
    if not isinstance(plain, torch.Tensor):
        raise NotAProblem(f"the reference of {problem.id} gives a {type(plain).__name__}, not tensors")
    error: torch.Tensor | float = 0.0
    if plain.is_floating_point() and exact.dtype != plain.dtype:
        error = error_by_size(plain.double(), exact.double())
    return Expected(
        dtype=str(plain.dtype).removeprefix("torch."),
        shape=tuple(plain.shape),
        value=exact.detach().clone(),
        honest_error=error,
    )


def error_by_size(plain: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """For each element, the largest error among elements within a factor of about four of its size.

    One figure for all would let the rounding of huge values excuse small ones that are plain wrong.
    """
    exponent = exact.abs().clamp(2.0**-126, 2.0**127).log2().floor().nan_to_num(0.0).long() + 128
    error = (plain - exact).abs().nan_to_num(0.0, 0.0, 0.0)
    largest = torch.zeros(258, dtype=torch.float64)
    largest.scatter_reduce_(0, exponent.reshape(-1), error.reshape(-1), "amax")
    near = torch.nn.functional.max_pool1d(largest[None], kernel_size=5, stride=1, padding=2)[0]
    return near[exponent]
