"""Sizes at which a candidate runs once more, because one tile held what several will hold.

A block that is made for the problem's own sizes may cover a whole dimension at the run sizes, where it does
not show how programs share the work. Of such a dimension the first size at which a grid changes at all has
twice the programs; where there were two tiles, it has half as many more. So each size is tried alone, by host
code that runs without data, and those that were one tile grow until they are two.
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
    """None where no size was one tile, or the least of those that were would be too large."""
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
    for name in reference.sizes:
        tries = {
            factor: found for (other, factor), found in zip(sources, there, strict=True) if other == name
        }
        needed = [factor for kernel in here if (factor := _to_two_tiles(kernel, here, tries))]
        if needed:
            factors[name] = max(needed)
    return _within_limits(case, reference, factors)


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


def _within_limits(case: Case, reference: Reference, factors: dict[str, float]) -> dict[str, Constant] | None:
    """All that should grow, if that is not too much; else without those that have to grow most."""
    run_bytes = _input_bytes(reference, reference.source) or 1
    passes = max(1, case.trials_passed)
    pass_s = (case.phases_s.get("first run", 0.0) + case.phases_s.get("runs", 0.0)) / passes
    while factors:
        num_bytes = _input_bytes(reference, _source(reference, factors))
        if num_bytes is not None and num_bytes <= _MOST_BYTES and pass_s * num_bytes / run_bytes <= _MOST_S:
            return _sizes(reference, factors)
        factors.pop(max(factors, key=lambda name: factors[name]))
    return None


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
