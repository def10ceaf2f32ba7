"""Sizes at which a CPU judges a problem that names none itself.

The sizes of a problem are the whole numbers of its module. Where these do not suffice, the numbers of tuples,
of default arguments and of the bodies of `get_inputs` and `get_init_inputs` are sizes too. They are divided
until inputs, weights and outputs are small, by 16, 4 or 2 at a time and the largest first. A division is
taken if the reference still runs without data and its tensors become smaller.

A divided size keeps what a kernel may rely on or must mask (`divided`): its remainder by a common block, its
parity, and whether it is a power of two. A size stays a multiple of a group, head or block size that divides
it. Of two inputs or weights with equal dimensions, none becomes one alone, because operators would broadcast
it, and inputs of one shape keep one shape (`equal_shapes.py`). Floors are given up one after the other: a few
rows of the own width show most, then whole blocks of 64 along a width, at last anything that runs. A
reference that reads values runs with data instead, at sizes that grow.

A kernel that is not correct at these sizes is judged once more at larger ones, which are nearer to the
problem's own. One that ran out of time is judged at fewer rows of the own width, on which host code may rely.
If it is late there too, it is judged at a 32nd of the bytes.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kernel_core.problems.source import at_precision, parse_problem, with_members
from kernel_core.records import Constant, Precision, Problem, Verdict

if TYPE_CHECKING:
    from kernel_core.gym.oracle.equal_shapes import SharedSizes
    from kernel_core.gym.oracle.need import Need

MOST_BYTES = 2**18
"""Inputs, weights and outputs together: an interpreter of kernels goes through them in seconds."""
_STILL_LARGE = 8
"""At so many times the bytes that were wanted, other numbers are divided too. Less than that is taken where a
width, or a size of a problem that reads values, would be less than a tile."""
_DIVISORS = (16, 4, 2)
_BLOCKS = tuple(2**power for power in range(13, -1, -1))
"""Blocks of kernels. A divided size has the same remainder by one of them."""
_MOST_IN_A_GROUP = 1024
"""A larger size that divides another one, as a width the number of rows, does so by chance."""
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
    """True if the next floors begin with the problem's own sizes again."""


class Scale(NamedTuple):
    """Bytes and floors of a search."""

    most_bytes: int
    floors: tuple[Floors, ...]
    """In the order in which they are given up."""
    floor_with_data: int
    """For all sizes of a problem that reads values."""
    most_with_data: int = _MOST_WITH_DATA
    """The product of the sizes of such a problem, once it has run at others."""
    least: tuple[tuple[str, int], ...] = ()
    """Sizes by name that no division goes below. Those that hold no tile are divided down to them first."""


_TILE = (Floors(16, 2, enough=_STILL_LARGE), Floors(1, 1))
"""Products of tiles in Triton have sixteen of each size at least."""
_FEW_ROWS = tuple(Floors(2**14, rows, enough=33, is_alone=True) for rows in (128, 4))
USUAL = Scale(MOST_BYTES, (*_FEW_ROWS, Floors(64, 64), Floors(64, 16), Floors(64, 2), *_TILE), 16)
FOR_MANY_ROWS = Scale(MOST_BYTES // 32, (Floors(2**14, 4),), 16)
"""For a kernel that takes many steps for each row."""
FOR_MANY_STEPS = Scale(MOST_BYTES // 32, (Floors(16, 16), *_TILE), 16)
"""For a kernel that takes many steps for each byte."""
FOR_WIDE_TILES = Scale(
    9 * MOST_BYTES,
    (Floors(1024, 128), Floors(1024, 16), Floors(128, 16), Floors(64, 16), Floors(64, 2), *_TILE),
    128,
    2**36,
)
"""For a kernel with larger blocks or groups written into it."""
_LITTLE = 8
"""Larger sizes keep one that saves less than this part of the bytes, as a number of heads beside a cache."""
_LIMITS = tuple(2**power for power in range(2, 17))


def with_small_sizes(problem: Problem, scale: Scale = USUAL) -> Problem:
    """The problem with sizes for a CPU, if it names none itself. See the module's text."""
    if problem.cpu_constants or not _whole_numbers(with_members(problem)):
        return problem
    sized, sizes = _found(problem.source, problem.precision, scale)
    whole = _whole_numbers(sized)
    changed = {name: value for name, value in sizes.items() if value != whole[name]}
    if not changed:
        return problem
    return problem.model_copy(update={"constants": dict(sized.constants), "cpu_constants": changed})


def with_other_sizes(problem: Problem, verdict: Verdict) -> list[Problem]:
    """Return the problem with sizes for further judgements of a kernel with this verdict, in their order.

    Where sizes become larger, none becomes smaller: a kernel that is wrong for one of them stays wrong.
    """
    if verdict in (Verdict.CORRECT, Verdict.MALFORMED):
        return []
    if verdict is Verdict.TIMED_OUT:
        rows, steps = (_at_scale(problem, scale) for scale in (FOR_MANY_ROWS, FOR_MANY_STEPS))
        return [other for other in (rows, None if steps == rows else steps) if other is not None]
    sizes = problem.constants | problem.cpu_constants
    least = tuple((name, size) for name, size in sizes.items() if type(size) is int)
    other = _at_scale(problem, FOR_WIDE_TILES._replace(least=least)) if problem.cpu_constants else None
    return [] if other is None else [other]


def divided(value: int, divisor: int, *, freely: bool = False) -> int | None:
    """About the part `1 / divisor` of a size, with the same remainder by a common block.

    8193 by 16 is 513, 12288 by 16 is 768, and 1000 by 4 is 232. None where nothing smaller has the parity of
    the size and is, or is not, a power of two like it. `freely` asks for neither.
    """
    for block in _BLOCKS:
        blocks, rest = divmod(value, block)
        smaller = blocks // divisor * block + rest
        if blocks >= divisor and smaller < value and _is_alike(smaller, value):
            return smaller
    return value // divisor if freely and value >= divisor else None


def _exactly(value: int, divisor: int) -> int | None:
    """The part `1 / divisor` of a multiple of the divisor, under the conditions of `divided`."""
    smaller, rest = divmod(value, divisor)
    return smaller if not rest and _is_alike(smaller, value) else None


def _is_alike(smaller: int, value: int) -> bool:
    """True if both are powers of two, or neither is and both have one parity."""
    return _is_power(smaller) == _is_power(value) and (smaller % 2 == value % 2 or _is_power(value))


def _is_power(value: int) -> bool:
    return value & (value - 1) == 0


def _at_scale(problem: Problem, scale: Scale) -> Problem | None:
    plain = problem.model_copy(update={"cpu_constants": {}})
    if with_small_sizes(plain).cpu_constants != problem.cpu_constants:
        return None  # the problem's own word
    other = with_small_sizes(plain, scale)
    return None if other.cpu_constants == problem.cpu_constants else other


@functools.lru_cache(maxsize=1024)
def _found(source: str, precision: Precision, scale: Scale) -> tuple[Problem, dict[str, int]]:
    """The problem, with members of tuples among its constants where these are divided, and its sizes."""
    problem = at_precision(parse_problem(source, id="sized", suite="sized"), precision)
    with_tuples = with_members(problem)
    whole = _whole_numbers(problem)
    if (need := _need(problem, {})) is not None:
        sizes, now = _divided_down(problem, whole, need, scale)
        if now.num_bytes > max(_STILL_LARGE, scale.floors[0].enough) * scale.most_bytes:
            problem = with_tuples
            sizes, _ = _divided_down(problem, _whole_numbers(problem), need, scale)
        # Without data an index that is out of bounds at these sizes does not show.
        if sizes == _whole_numbers(problem) or _need(problem, sizes, "cpu") is not None:
            return problem, sizes
    else:
        sizes = whole
    for tried in (problem, with_tuples):
        if grown := _grown(tried, scale):
            return tried, grown
    return problem, sizes


def _grown(problem: Problem, scale: Scale) -> dict[str, int] | None:
    """The largest sizes of so many bytes at most, or else the smallest that run, each halved down to a limit;
    None where none run. Up to a floor several times as much is taken."""
    whole, largest = _whole_numbers(problem), None
    for limit in _LIMITS:
        times = _STILL_LARGE if limit <= scale.floor_with_data else 1
        sizes = {name: _halved_to(limit, value) for name, value in whole.items()}
        most_sizes = _MOST_WITH_DATA if largest is None else scale.most_with_data
        if math.prod(sizes.values()) > times * most_sizes:
            break
        need = _need(problem, sizes, "cpu")
        if need is not None and need.num_bytes > times * scale.most_bytes and largest is not None:
            break
        largest = sizes if need is not None else largest
        if sizes == whole:
            break
    return largest


def _halved_to(limit: int, value: int) -> int:
    while value > limit:
        value = divided(value, 2, freely=True) or 1
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
        while now.num_bytes > most and (smaller := _smaller(problem, sizes, now, floors, scale)):
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


def _shared_sizes(problem: Problem) -> SharedSizes:
    from kernel_core.gym.oracle.equal_shapes import SharedSizes  # with torch, which takes seconds

    return SharedSizes(problem)


def _smaller(
    problem: Problem, sizes: dict[str, int], now: Need, floors: Floors, scale: Scale
) -> tuple[dict[str, int], Need] | None:
    """The first division that the problem takes and that makes its tensors smaller."""
    excess, own = math.ceil(now.num_bytes / scale.most_bytes), _whole_numbers(problem)
    shared = _shared_sizes(problem)
    for tried in _divided(sizes, excess, floors.others, shared, bool(scale.least)):
        if floors.others > 1 and not _keeps_divisors(own, tried):
            continue
        if not shared.keep_multiples(tried):
            continue
        if any(tried.get(name, size) < size for name, size in scale.least):
            continue
        need = _need(problem, tried)
        if need is None or need.num_bytes >= now.num_bytes or need.broadcasts_more_than(now):
            continue
        if scale.least and now.num_bytes - need.num_bytes < now.num_bytes // _LITTLE:
            continue
        if all(
            width >= min(before, floors.widths)
            for before, width in zip(now.widths, need.widths, strict=False)
        ):
            return tried, need
    return None


def _divided(
    sizes: dict[str, int], excess: int, floor: int, shared: SharedSizes, also_below: bool
) -> Iterator[dict[str, int]]:
    """Sizes with one value divided, the largest first and by no more than there is too much. Those that are
    below the floor already are divided if `also_below`. Exact parts come last: a window of 7 divides 14, the
    quarter of 56, and not 12."""
    ways: tuple[Callable[[int, int], int | None], ...] = (
        functools.partial(divided, freely=floor == 1),
        _exactly,
    )
    for part_of, divisor in itertools.product(ways, _DIVISORS):
        for value in sorted(set(sizes.values()), reverse=True):
            names = [name for name, size in sizes.items() if size == value and shared.leads(name)]
            smaller = part_of(value, divisor)
            least = 2 if also_below and value < floor else floor
            if smaller is None or smaller < least or divisor > max(2, excess):
                continue
            changes = [shared.with_size(name, smaller) for name in names]
            yield from (sizes | change for change in changes)
            if len(changes) > 1:
                yield functools.reduce(operator.or_, changes, sizes)


def _keeps_divisors(own: Mapping[str, int], tried: Mapping[str, int]) -> bool:
    """True if each size is still a multiple of the groups, heads or blocks that divide it."""
    return all(
        tried[more] % tried[less] == 0
        for more, less in itertools.permutations(own, 2)
        if own[more] > own[less] and own[less] <= _MOST_IN_A_GROUP and own[more] % own[less] == 0
    )
