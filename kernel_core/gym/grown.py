"""Sizes at which a candidate runs once more, because one tile held what several will hold.

A block that is made for the problem's own sizes may cover a whole dimension at the run sizes, where it does
not show how programs share the work. Of such a dimension the first size at which a grid changes at all has
twice the programs; where there were two tiles, it has half as many more. So each size is tried alone, by host
code that runs without data, and those that were one tile grow until they are two. Where a loop has turned
once at most, sizes on which no grid depends grow too, as far as they may.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from kernel_core.errors import NotAProblem
from kernel_core.gym.bench import Bench
from kernel_core.gym.case import Case
from kernel_core.gym.own_sizes import Place, num_programs, run_without_data
from kernel_core.gym.problem_module import ProblemModule, own_seeds
from kernel_core.gym.reference import Reference
from kernel_core.gym.trial import tensor_bytes
from kernel_core.problems.source import resize
from kernel_core.records import Constant

_FACTORS = (1.5, 2, 4, 8, 16, 32)
_MOST_BYTES = 16 << 20
_MOST_S = 3.0
"""What a pass may take, reckoned from one at the run sizes by the bytes of inputs."""

Programs = Mapping[Place, int]


def grown_sizes(case: Case, reference: Reference, bench: Bench) -> dict[str, Constant] | None:
    """None where there is no size to grow, or the least that would help is too large."""
    sources = {
        one: source for one in product(reference.sizes, _FACTORS) if (source := _grown(reference, *one))
    }
    if not sources:
        return None
    rehearsed = run_without_data(case, reference, [reference.source, *sources.values()], bench, may_fail=True)
    if isinstance(rehearsed, str):
        return None
    here, *there = (num_programs(rehearsed.kernels, one) for one in rehearsed.passes)
    factors: dict[str, float] = {}
    inner: dict[str, list[float]] = {}
    for name in reference.sizes:
        grids = {one[1]: found for one, found in zip(sources, there, strict=True) if one[0] == name}
        needed = [factor for kernel in here if (factor := _to_two_tiles(kernel, here, grids))]
        if needed:
            factors[name] = max(needed)
        elif case.looped_once:
            inner[name] = [factor for factor, found in grids.items() if found == here]
    limits = _Limits(case, reference)
    while factors and not limits.allow(factors):
        factors.pop(max(factors, key=lambda name: factors[name]))
    for name, choices in inner.items():
        allowed = [factor for factor in choices if limits.allow(factors | {name: factor})]
        if allowed:
            factors[name] = max(allowed)
    return _sizes(reference, factors) if factors else None


def _to_two_tiles(kernel: Place, here: Programs, tries: Mapping[float, Programs]) -> float | None:
    """By how much a size has to grow, by ascending tries; None where it was not one tile of this kernel's."""
    for factor, there in tries.items():
        if kernel in there and there[kernel] != here[kernel]:
            return factor if there[kernel] >= 2 * here[kernel] else None
    return None


def _grown(reference: Reference, name: str, factor: float) -> str | None:
    """The problem's text with one size grown, but not beyond its own; None where it cannot."""
    size, own = reference.sizes[name], reference.problem.constants.get(name)
    if type(size) is not int or type(own) is not int or not size < int(factor * size) <= own:
        return None
    source = _source(reference, {name: factor})
    return source if _input_bytes(reference, source) is not None else None


class _Limits:
    """Of inputs' bytes, and of the time that a pass takes by them."""

    def __init__(self, case: Case, reference: Reference) -> None:
        self._reference = reference
        self._run_bytes = _input_bytes(reference, reference.source) or 1
        later, first = case.phases_s.get("runs"), case.phases_s.get("first run", 0.0)
        self._pass_s = first if later is None else later / max(1, case.trials_passed - 1)

    def allow(self, factors: Mapping[str, float]) -> bool:
        """Whether sizes may grow by so much."""
        num_bytes = _input_bytes(self._reference, _source(self._reference, factors))
        if num_bytes is None or num_bytes > _MOST_BYTES:
            return False
        return self._pass_s * num_bytes / self._run_bytes <= _MOST_S


def _sizes(reference: Reference, factors: Mapping[str, float]) -> dict[str, Constant]:
    grown = dict(reference.sizes)
    for name, factor in factors.items():
        size = grown[name]
        assert isinstance(size, int)
        grown[name] = int(factor * size)
    return grown


def _source(reference: Reference, factors: Mapping[str, float]) -> str:
    return resize(reference.problem, _sizes(reference, factors)).source


def _input_bytes(reference: Reference, source: str) -> int | None:
    """None for sizes that go together only as they are."""
    problem = reference.problem
    try:
        with own_seeds("meta"):
            program = ProblemModule(source, problem.id, problem.precision, "meta")
            return tensor_bytes(program.inputs())
    except NotAProblem:
        return None
