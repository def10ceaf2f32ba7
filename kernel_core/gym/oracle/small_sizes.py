"""Sizes by a rule, at which a CPU judges a problem in seconds."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kernel_core.config import ProblemsConfig
from kernel_core.problems.load import load_problems
from kernel_core.problems.source import at_precision, parse_problem, with_members
from kernel_core.records import Constant, Precision, Problem

if TYPE_CHECKING:
    from kernel_core.gym.oracle.need import Need

MOST_BYTES = 2**18
"""Inputs, weights and outputs together: an interpreter of kernels goes through them in seconds."""
_STILL_LARGE = 8
"""At so many times the bytes that were wanted, tuples are divided too. Less than that is taken where a width,
or a size of a problem that reads values, would be less than a tile."""
_DIVISORS = (16, 4, 2)
_MOST_WITH_DATA = 2**24
"""The product of sizes at which a problem that reads values is run first: a run at more may be long."""
_MOST_OPERATIONS = 2**28
"""The most operations of a run that keeps its own width: an interpreter is long at larger products."""


class Floors(NamedTuple):
    """The least that sizes are divided to."""

    widths: int
    """For the last dimensions of inputs and outputs."""
    others: int
    enough: int = 1
    """At so many times the bytes that were wanted no lower floors are tried."""
    is_alone: bool = False
    """Whether the next floors begin with the problem's own sizes again."""


class Scale(NamedTuple):
    """How large sizes by the rule are."""

    most_bytes: int
    floors: tuple[Floors, ...]
    """In the order in which they are given up."""
    floor_with_data: int
    """For all sizes of a problem that reads values."""
    most_with_data: int = _MOST_WITH_DATA
    """The product of the sizes of such a problem, once it has run at others."""
    is_odd: bool = False
    """Whether each size is made odd at last where the problem allows that: a kernel without masks is right at
    powers of two. Else a kernel that relies on a power of two of the problem's own is right."""


_LEAST = Floors(1, 1)
_TILE = (Floors(16, 2, enough=_STILL_LARGE), _LEAST)
"""Products of tiles in Triton have sixteen of each size at least."""
ODD = Scale(MOST_BYTES, (_LEAST,), 1, is_odd=True)
TILES = Scale(
    MOST_BYTES,
    (Floors(8192, 128, enough=32, is_alone=True), Floors(64, 64), Floors(64, 16), Floors(64, 2), *_TILE),
    16,
)
"""Few rows of the problem's own width show most; else kernels take whole blocks of 64 along a width."""
FOR_MANY_STEPS = Scale(MOST_BYTES // 32, (Floors(16, 16), *_TILE), 16)
"""For a kernel that takes many steps for each byte."""
FOR_WIDE_TILES = Scale(
    8 * MOST_BYTES,
    (Floors(1024, 128), Floors(1024, 16), Floors(128, 16), Floors(64, 16), Floors(64, 2), *_TILE),
    128,
    2**36,
)
"""For a kernel with larger blocks or groups written into it."""
_LIMITS = tuple(2**power for power in range(2, 17))


def load_sized(config: ProblemsConfig) -> list[Problem]:
    """The problems that a config names, with sizes by a rule where it asks for `small` ones."""
    problems = load_problems(config)
    return list(map(with_small_sizes, problems)) if config.sizes == "small" else problems


def with_small_sizes(problem: Problem, scale: Scale = ODD) -> Problem:
    """The problem with sizes for a CPU by a rule, if it names none itself.

    The largest whole number of the module is divided as long as the problem still runs and its tensors
    become smaller, down to the bytes of the scale. Whole numbers of one value are also tried together.
    Where no constant can be divided so far, the numbers of tuples (`shape = (32768,)`) are divided too.
    A problem that reads values is run with data instead, at sizes that grow from the smallest ones.
    """
    if problem.cpu_constants or not _whole_numbers(problem):
        return problem
    sized, found = _found(problem.source, problem.precision, scale)
    whole = _whole_numbers(sized)
    changed = {name: value for name, value in found.items() if value != whole[name]}
    return problem.model_copy(update={"constants": dict(sized.constants), "cpu_constants": changed})


def with_fewer_bytes(problem: Problem) -> Problem | None:
    """The problem with sizes for many steps, where it has those of whole tiles by the rule; else None."""
    return _at_scale(problem, FOR_MANY_STEPS)


def with_larger_sizes(problem: Problem) -> Problem | None:
    """The problem with sizes for wide tiles, where it has those of whole tiles by the rule and no width gets
    smaller; else None. A kernel that is wrong for the problem's own width stays wrong."""
    other = _at_scale(problem, FOR_WIDE_TILES)
    if other is None:
        return None
    now, larger = (_need(one, one.cpu_constants) for one in (problem, other))
    if now is None or larger is None:
        return other
    return other if all(one <= more for one, more in zip(now.widths, larger.widths, strict=False)) else None


def _at_scale(problem: Problem, scale: Scale) -> Problem | None:
    plain = problem.model_copy(update={"cpu_constants": {}})
    if with_small_sizes(plain, TILES).cpu_constants != problem.cpu_constants:
        return None
    other = with_small_sizes(plain, scale)
    return None if other.cpu_constants == problem.cpu_constants else other


@functools.lru_cache(maxsize=1024)
def _found(source: str, precision: Precision, scale: Scale) -> tuple[Problem, dict[str, int]]:
    """The problem, with members of tuples among its constants where these are divided, and its sizes."""
    problem = at_precision(parse_problem(source, id="sized", suite="sized"), precision)
    with_tuples = with_members(problem)
    whole = _whole_numbers(problem)
    if (need := _need(problem, {})) is not None:
        found, now = _divided_down(problem, whole, need, scale)
        if now.num_bytes > _STILL_LARGE * scale.most_bytes:
            problem = with_tuples
            found, _ = _divided_down(problem, _whole_numbers(problem), need, scale)
        return problem, _odd(problem, found, "meta") if scale.is_odd else found
    for tried in (problem, with_tuples):
        if grown := _grown(tried, scale):
            return tried, _odd(tried, grown, "cpu") if scale.is_odd else grown
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


def _grown(problem: Problem, scale: Scale) -> dict[str, int] | None:
    """The largest sizes of so many bytes at most, or else the smallest that run, each halved down to a limit;
    None where none run. Up to a floor several times as much is taken."""
    whole, found = _whole_numbers(problem), None
    for limit in _LIMITS:
        times = _STILL_LARGE if limit <= scale.floor_with_data else 1
        sizes = {name: _halved_to(limit, value) for name, value in whole.items()}
        most_sizes = _MOST_WITH_DATA if found is None else scale.most_with_data
        if math.prod(sizes.values()) > times * most_sizes:
            break
        need = _need(problem, sizes, "cpu")
        if need is not None and need.num_bytes > times * scale.most_bytes and found is not None:
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
    problem: Problem, sizes: dict[str, int], now: Need, scale: Scale
) -> tuple[dict[str, int], Need]:
    """The sizes, divided as far as needed and possible, and the need then. Below a floor no size gets until
    nothing else can be divided."""
    most, whole = scale.most_bytes, (sizes, now)
    for floors in scale.floors:
        while now.num_bytes > most and (smaller := _smaller(problem, sizes, now, floors, most)):
            sizes, now = smaller
        is_much = floors.is_alone and now.operations > _MOST_OPERATIONS
        if now.num_bytes <= floors.enough * most and not is_much:
            break
        if floors.is_alone:
            sizes, now = whole
    return sizes, now


def _need(problem: Problem, sizes: Mapping[str, Constant], device: str = "meta") -> Need | None:
    from kernel_core.gym.oracle.need import need_of  # with torch, which takes seconds

    return need_of(problem, sizes, device)


def _smaller(
    problem: Problem, sizes: dict[str, int], now: Need, floors: Floors, most_bytes: int
) -> tuple[dict[str, int], Need] | None:
    """The first division that the problem takes and that makes its tensors smaller."""
    for tried in _divided(sizes, math.ceil(now.num_bytes / most_bytes), floors.others):
        need = _need(problem, tried)
        if need is None or need.num_bytes >= now.num_bytes:
            continue
        if all(
            width >= min(before, floors.widths)
            for before, width in zip(now.widths, need.widths, strict=False)
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
