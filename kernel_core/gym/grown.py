"""Sizes at which a candidate runs once more, because one program did what several will do.

A block that is made for the problem's own sizes may cover everything at the run sizes, where it does not show
how programs share the work. So sizes grow until there are several programs in each dimension of a grid in
which there will be: by as little as it takes, which is found out by host code that runs without data.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from kernel_core.errors import NotAProblem
from kernel_core.gym.bench import Bench
from kernel_core.gym.case import Case
from kernel_core.gym.own_sizes import Rehearsal, most_programs, run_without_data
from kernel_core.gym.problem_module import ProblemModule, own_seeds
from kernel_core.gym.reference import Reference
from kernel_core.gym.trial import tensor_bytes
from kernel_core.problems.source import resize
from kernel_core.records import Constant

_FACTORS = (2, 4, 8, 16, 32)
_MOST_BYTES = 16 << 20
_MOST_S = 3.0
"""What a pass may take, reckoned from one at the run sizes by the bytes of inputs."""

Factors = Mapping[str, int]


def grown_sizes(
    case: Case, reference: Reference, rehearsal: Rehearsal, bench: Bench
) -> dict[str, Constant] | None:
    """None where all dimensions have several programs that will, or too much would have to grow."""
    if not rehearsal.single:
        return None
    tries = [one for one in product(reference.sizes, _FACTORS) if _may_grow(reference, *one)]
    if not tries:
        return None
    try:
        sources = [_source(reference, dict([one])) for one in tries]
        rehearsed = run_without_data(case, reference, sources, bench)
        if isinstance(rehearsed, str):
            return None
        programs = [most_programs(rehearsed.kernels, one) for one in rehearsed.passes]
        growers = [
            _smallest(tries, [counts.get(kernel, (1, 1, 1))[axis] for counts in programs])
            for kernel, axis in sorted(rehearsal.single)
        ]
        return _within_limits(case, reference, [one for one in growers if one])
    except NotAProblem:
        return None  # sizes that go together only as they are


def _may_grow(reference: Reference, name: str, factor: int) -> bool:
    size, own = reference.sizes[name], reference.problem.constants.get(name)
    return type(size) is int and type(own) is int and factor * size <= own


def _sizes(reference: Reference, factors: Factors) -> dict[str, Constant]:
    grown = dict(reference.sizes)
    for name, factor in factors.items():
        size = grown[name]
        assert isinstance(size, int)
        grown[name] = factor * size
    return grown


def _source(reference: Reference, factors: Factors) -> str:
    return resize(reference.problem, _sizes(reference, factors)).source


def _smallest(tries: list[tuple[str, int]], counts: list[int]) -> dict[str, int]:
    """By sizes that alone make several programs: by how much they have to grow."""
    found: dict[str, int] = {}
    for (name, factor), count in zip(tries, counts, strict=True):
        if count > 1:
            found.setdefault(name, factor)
    return found


def _within_limits(
    case: Case, reference: Reference, growers: list[dict[str, int]]
) -> dict[str, Constant] | None:
    """All that help, if that is not too much; else without those that have to grow most, as long as one is
    left for each dimension."""
    chosen: dict[str, int] = {}
    for one in growers:
        for name, factor in one.items():
            chosen[name] = max(factor, chosen.get(name, 1))
    run_bytes = _input_bytes(reference, {})
    passes = max(1, case.trials_passed)
    pass_s = (case.phases_s.get("first run", 0.0) + case.phases_s.get("runs", 0.0)) / passes
    while chosen:
        num_bytes = _input_bytes(reference, chosen)
        if num_bytes <= _MOST_BYTES and pass_s * num_bytes / max(1, run_bytes) <= _MOST_S:
            return _sizes(reference, chosen)
        spare = [name for name in chosen if all(one.keys() & (chosen.keys() - {name}) for one in growers)]
        if not spare:
            return None
        chosen.pop(max(spare, key=lambda name: chosen[name]))
    return None


def _input_bytes(reference: Reference, factors: Factors) -> int:
    problem = reference.problem
    with own_seeds("meta"):
        program = ProblemModule(_source(reference, factors), problem.id, problem.precision, "meta")
        return tensor_bytes(program.inputs())
