"""Sizes by a rule, at which a CPU judges a problem in seconds. Nothing is drawn for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernel_core.config import ProblemsConfig
from kernel_core.problems.load import load_problems
from kernel_core.records import Problem

if TYPE_CHECKING:
    from kernel_core.gym.oracle.need import Need

MOST_BYTES = 2**18
"""Inputs, weights and outputs together: an interpreter of kernels goes through them in seconds."""
_DIVISORS = (16, 4, 2)


def load_sized(config: ProblemsConfig) -> list[Problem]:
    """The problems that a config names, with sizes by a rule where it asks for `small` ones."""
    problems = load_problems(config)
    return list(map(with_small_sizes, problems)) if config.sizes == "small" else problems


def with_small_sizes(problem: Problem) -> Problem:
    """The problem with sizes for a CPU by a rule, if it names none itself.

    The largest whole number of the module is divided as long as the problem still runs and its tensors
    become smaller, down to `MOST_BYTES`. At last each is made odd where the problem allows that, because a
    kernel without masks is right at powers of two. Whole numbers of one value are also tried together.
    """
    sizes = {name: value for name, value in problem.constants.items() if type(value) is int and value > 1}
    need = _need(problem, {}) if sizes and not problem.cpu_constants else None
    if need is None:
        return problem
    found, now = dict(sizes), need.num_bytes
    while now > MOST_BYTES and (smaller := _smaller(problem, found, now)) is not None:
        found, now = smaller
    for name, value in found.items():
        odd = found | {name: value + 1}
        if value % 2 == 0 and value != sizes[name] and _need(problem, odd) is not None:
            found = odd
    changed = {name: value for name, value in found.items() if value != sizes[name]}
    return problem.model_copy(update={"cpu_constants": changed})


def _need(problem: Problem, sizes: dict[str, int]) -> Need | None:
    from kernel_core.gym.oracle.need import need_of  # with torch, which takes seconds

    return need_of(problem, sizes)


def _smaller(problem: Problem, sizes: dict[str, int], now: int) -> tuple[dict[str, int], int] | None:
    """The first division that the problem takes and that makes its tensors smaller."""
    for tried in _divided(sizes, math.ceil(now / MOST_BYTES)):
        need = _need(problem, tried)
        if need is not None and need.num_bytes < now:
            return tried, need.num_bytes
    return None


def _divided(sizes: dict[str, int], excess: int) -> Iterator[dict[str, int]]:
    """Sizes with one value divided, the largest first and by no more than there is too much."""
    for divisor in _DIVISORS:
        for value in sorted(set(sizes.values()), reverse=True):
            names = [name for name, one in sizes.items() if one == value]
            if value < divisor or divisor > max(2, excess):
                continue
            yield from (sizes | {name: value // divisor} for name in names)
            if len(names) > 1:
                yield sizes | dict.fromkeys(names, value // divisor)
