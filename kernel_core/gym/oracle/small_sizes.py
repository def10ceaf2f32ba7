"""Sizes by a rule, at which a CPU judges a problem in seconds. Nothing is drawn for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernel_core.config import ProblemsConfig
from kernel_core.problems.load import load_problems
from kernel_core.problems.source import with_members
from kernel_core.records import Problem

if TYPE_CHECKING:
    from kernel_core.gym.oracle.need import Need

MOST_BYTES = 2**18
"""Inputs, weights and outputs together: an interpreter of kernels goes through them in seconds."""
_STILL_LARGE_BYTES = 8 * MOST_BYTES
"""At more than this an interpreter takes minutes."""
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
    Where no constant can be divided so far, the numbers of tuples (`shape = (32768,)`) are divided too.
    """
    whole = _whole_numbers(problem)
    need = _need(problem, {}) if whole and not problem.cpu_constants else None
    if need is None:
        return problem
    found, now = _divided_down(problem, whole, need.num_bytes)
    if now > _STILL_LARGE_BYTES:
        problem = with_members(problem)
        whole = _whole_numbers(problem)
        found, now = _divided_down(problem, whole, need.num_bytes)
    for name, value in found.items():
        equal = [other for other in found if whole[other] == whole[name] and found[other] == value]
        for names in ([name], equal):
            odd = found | dict.fromkeys(names, value + 1)
            if found[name] % 2 == 0 and value != whole[name] and _need(problem, odd) is not None:
                found = odd
    changed = {name: value for name, value in found.items() if value != whole[name]}
    return problem.model_copy(update={"cpu_constants": changed})


def _whole_numbers(problem: Problem) -> dict[str, int]:
    return {name: value for name, value in problem.constants.items() if type(value) is int and value > 1}


def _divided_down(problem: Problem, sizes: dict[str, int], now: int) -> tuple[dict[str, int], int]:
    """The sizes, divided as far as needed and possible, and the bytes of the tensors then."""
    while now > MOST_BYTES and (smaller := _smaller(problem, sizes, now)) is not None:
        sizes, now = smaller
    return sizes, now


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
