"""Sizes by a rule, at which a CPU judges a problem in seconds."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kernel_core.config import ProblemsConfig
from kernel_core.problems.load import load_problems
from kernel_core.problems.source import at_precision, parse_problem, with_members
from kernel_core.records import Precision, Problem

if TYPE_CHECKING:
    from kernel_core.gym.oracle.need import Need

MOST_BYTES = 2**18
"""Inputs, weights and outputs together: an interpreter of kernels goes through them in seconds."""
_FEWER_BYTES = MOST_BYTES // 8
"""For a kernel that takes many steps for each of them."""
_STILL_LARGE = 8
"""At so many times the bytes that were wanted, tuples are divided too. Less than that is taken where sizes
that a problem reads would be narrower than a tile."""
_DIVISORS = (16, 4, 2)
_TILE = 16
"""The least width of a product of tiles in Triton."""
_FLOORS = ((64, 64), (64, 16), (64, 2), (_TILE, 2), (1, 1))
"""For widths and other sizes. Kernels take whole blocks of 64 along a width."""
Floors = tuple[int, int]
_LIMITS = tuple(2**power for power in range(2, 17))
_MOST_WITH_DATA = 2**24
"""The product of sizes at which a problem that reads values is still run: a run at more is long."""


def load_sized(config: ProblemsConfig) -> list[Problem]:
    """The problems that a config names, with sizes by a rule where it asks for `small` ones."""
    problems = load_problems(config)
    return list(map(with_small_sizes, problems)) if config.sizes == "small" else problems


def with_small_sizes(problem: Problem, *, odd: bool = True, most_bytes: int = MOST_BYTES) -> Problem:
    """The problem with sizes for a CPU by a rule, if it names none itself.

    The largest whole number of the module is divided as long as the problem still runs and its tensors
    become smaller, down to `most_bytes`. Whole numbers of one value are also tried together.
    Where no constant can be divided so far, the numbers of tuples (`shape = (32768,)`) are divided too.
    A problem that reads values is run with data instead, at sizes that grow from the smallest ones.

    With `odd` each is made odd at last where the problem allows that, because a kernel without masks is
    right at powers of two. Without, a kernel that relies on a power of two of the problem's own is right.
    Then the last dimensions of inputs and outputs keep the width of a tile as long as others can be divided.
    """
    if problem.cpu_constants or not _whole_numbers(problem):
        return problem
    sized, found = _found(problem.source, problem.precision, odd, most_bytes)
    whole = _whole_numbers(sized)
    changed = {name: value for name, value in found.items() if value != whole[name]}
    return problem.model_copy(update={"constants": dict(sized.constants), "cpu_constants": changed})


def with_smaller_sizes(problem: Problem) -> Problem | None:
    """The problem with sizes of an eighth of the bytes, where it has small ones by the rule; else None."""
    plain = problem.model_copy(update={"cpu_constants": {}})
    if with_small_sizes(plain, odd=False).cpu_constants != problem.cpu_constants:
        return None
    smaller = with_small_sizes(plain, odd=False, most_bytes=_FEWER_BYTES)
    return None if smaller.cpu_constants == problem.cpu_constants else smaller


@functools.lru_cache(maxsize=1024)
def _found(source: str, precision: Precision, odd: bool, most_bytes: int) -> tuple[Problem, dict[str, int]]:
    """The problem, with members of tuples among its constants where these are divided, and its sizes."""
    problem = at_precision(parse_problem(source, id="sized", suite="sized"), precision)
    with_tuples = with_members(problem)
    whole = _whole_numbers(problem)
    if (need := _need(problem, {})) is not None:
        floors = _FLOORS[-1:] if odd else _FLOORS
        found, now = _divided_down(problem, whole, need, floors, most_bytes)
        if now.num_bytes > _STILL_LARGE * most_bytes:
            problem = with_tuples
            found, _ = _divided_down(problem, _whole_numbers(problem), need, floors, most_bytes)
        return problem, _odd(problem, found, "meta") if odd else found
    for tried in (problem, with_tuples):
        if grown := _grown(tried, most_bytes, 1 if odd else _TILE):
            return tried, _odd(tried, grown, "cpu") if odd else grown
    return problem, whole


def _odd(problem: Problem, found: dict[str, int], device: str) -> dict[str, int]:
    """The sizes, each made odd where it is not the problem's own and the problem runs with it."""
    whole = _whole_numbers(problem)
    for name, value in found.items():
        equal = [other for other in found if whole[other] == whole[name] and found[other] == value]
        for names in ([name], equal):
            odd = found | dict.fromkeys(names, value + 1)
            if found[name] % 2 == 0 and value != whole[name] and _need(problem, odd, device) is not None:
                found = odd
    return found


def _grown(problem: Problem, most_bytes: int, floor: int) -> dict[str, int] | None:
    """The largest sizes of so many bytes at most, or else the smallest that run, each halved down to a limit;
    None where none run. Up to a floor several times as much is taken."""
    whole, found = _whole_numbers(problem), None
    for limit in _LIMITS:
        times = _STILL_LARGE if limit <= floor else 1
        sizes = {name: _halved_to(limit, value) for name, value in whole.items()}
        if math.prod(sizes.values()) > times * _MOST_WITH_DATA:
            break
        need = _need(problem, sizes, "cpu")
        if need is not None and need.num_bytes > times * most_bytes and found is not None:
            break
        found = sizes if need is not None else found
        if sizes == whole:
            break
    return found


def _halved_to(limit: int, value: int) -> int:
    while value > limit:
        value //= 2
    return value


def _whole_numbers(problem: Problem) -> dict[str, int]:
    return {name: value for name, value in problem.constants.items() if type(value) is int and value > 1}


def _divided_down(
    problem: Problem, sizes: dict[str, int], now: Need, floors: Sequence[Floors], most_bytes: int
) -> tuple[dict[str, int], Need]:
    """The sizes, divided as far as needed and possible, and the need then. Below a floor no size gets until
    nothing else can be divided."""
    for one in floors:
        while now.num_bytes > most_bytes and (smaller := _smaller(problem, sizes, now, one, most_bytes)):
            sizes, now = smaller
    return sizes, now


def _need(problem: Problem, sizes: dict[str, int], device: str = "meta") -> Need | None:
    from kernel_core.gym.oracle.need import need_of  # with torch, which takes seconds

    return need_of(problem, sizes, device)


def _smaller(
    problem: Problem, sizes: dict[str, int], now: Need, floors: Floors, most_bytes: int
) -> tuple[dict[str, int], Need] | None:
    """The first division that the problem takes and that makes its tensors smaller."""
    of_widths, of_others = floors
    for tried in _divided(sizes, math.ceil(now.num_bytes / most_bytes), of_others):
        need = _need(problem, tried)
        if need is None or need.num_bytes >= now.num_bytes:
            continue
        if all(
            width >= min(before, of_widths) for before, width in zip(now.widths, need.widths, strict=False)
        ):
            return tried, need
    return None


def _divided(sizes: dict[str, int], excess: int, floor: int) -> Iterator[dict[str, int]]:
    """Sizes with one value divided, the largest first and by no more than there is too much."""
    for divisor in _DIVISORS:
        for value in sorted(set(sizes.values()), reverse=True):
            names = [name for name, one in sizes.items() if one == value]
            if value // divisor < floor or divisor > max(2, excess):
                continue
            yield from (sizes | {name: value // divisor} for name in names)
            if len(names) > 1:
                yield sizes | dict.fromkeys(names, value // divisor)
