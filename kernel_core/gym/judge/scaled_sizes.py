"""Sizes at which a candidate runs once more, because its faults may not show at the run sizes.

At the run sizes one tile, one turn of a loop or one branch of host code may hold what several hold at the
problem's own sizes. Sizes are no multiple of a block there, as the problem's own sizes often are. So each
size in turn grows to its own value, halved until the work is small enough. The others stay small: they are
halved as far as still shows how they divide. Where that is too much, they keep the run sizes. Where there is
room, several grow to their own values at once. What divides both the run size and the own size divides every
size between: a kernel may rely on it, as on whole groups of a quantization.

The sizes depend on the problem alone. No answer of a candidate changes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernel_core.gym.oracle.equal_shapes import SharedSizes
from kernel_core.gym.oracle.need import inputs_at, need_of
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.small_sizes import divided
from kernel_core.gym.oracle.trial import tensor_bytes
from kernel_core.problems.gradients import wanted_gradients
from kernel_core.records import Constant

_MOST_BYTES_OF_LAST = 1 << 19
"""The most bytes of inputs, weights and outputs where the problem's last size grows. Rows are longer then,
not more."""
_MOST_BYTES = 1 << 17
"""The most bytes where another size grows: an interpreter runs a thousand programs a second."""
_MOST_BYTES_TOGETHER = 1 << 18
"""The most bytes where other sizes grow as well."""
_MOST_OPERATIONS = 1 << 24
"""The most operations of the reference: products are turns of loops."""
_MOST_TO_TURN = 64
"""Sizes at which host code is run without data."""
_LEAST_WIDTH = 64
"""The least width of inputs and outputs beside a size that grows: a whole block of most kernels."""
_CLEARLY = 1.5
"""The factor by which one of the problem's own sizes is less than another on purpose."""
_SHOWS_HOW_IT_DIVIDES = 64
"""A size of at least this much, halved from its own size, is a multiple of the same blocks."""

Sizes = dict[str, Constant]


class Room(NamedTuple):
    """The most bytes and operations of the reference at sizes where loops turn more."""

    num_bytes: int
    operations: int


TO_TURN = Room(1 << 22, 1 << 28)
"""For one run at which a loop turns that else would not: it may take ten seconds."""
TO_LAUNCH = Room(1 << 26, 1 << 28)
"""For a candidate that launches no kernel of its own."""
_CHEAPLY = Room(1 << 19, 1 << 24)
"""For a run that is about as long as one at the run sizes. Four times the need of those is cheap, too."""


def grown_sizes(reference: Reference) -> tuple[Sizes, ...]:
    """All sizes for each run. It begins with the last size, because programs usually cover most of that
    size."""
    own, limits, runs = reference.problem.constants, _SizeLimits(reference), list[Sizes]()
    pending = _may_grow(reference, limits)
    names = list(pending)
    while pending:
        name = pending.pop()
        steps = _halved(own[name], reference.sizes[name])
        tried = (limits.resized(reference.sizes, name, size) for size in steps)
        most_bytes = _MOST_BYTES_OF_LAST if name == names[-1] else _MOST_BYTES
        grown = next((sizes for sizes in tried if limits.allow(sizes, most_bytes)), None)
        if grown is None:
            continue
        for other in names:
            choices = [own[other]] if other in pending else []
            choices += [_small(own[other], reference.sizes[other])] if other != name else []
            wider = (limits.resized(grown, other, size) for size in choices)
            taken = next((sizes for sizes in wider if limits.allow(sizes, _MOST_BYTES_TOGETHER)), grown)
            if other in pending and taken[other] == own[other]:
                pending.remove(other)
            grown = taken
        runs.append(grown)
    return tuple(runs)


def turning_sizes(reference: Reference, room: Room = TO_TURN) -> list[Sizes]:
    """Sizes at which loops may turn more than at those of `grown_sizes`.

    Each size grows alone and all grow together, the fewest bytes first. Then each grows beside smaller
    others, which leaves room.
    """
    own, run, limits = reference.problem.constants, reference.sizes, _SizeLimits(reference)
    steps = {name: [*_halved(own[name], run[name])][::-1] for name in _may_grow(reference, limits)}
    few = run | limits.thinned({**own, **run})
    alone, thin = (
        [limits.resized(others, name, size) for name, sizes in steps.items() for size in sizes]
        for others in (run, few)
    )
    for step in range(max(map(len, steps.values()), default=0)):
        together = dict(run)
        for name, sizes in steps.items():
            together = limits.resized(together, name, sizes[min(step, len(sizes) - 1)])
        alone.append(together)
    tried = [*alone, *thin]
    allowed = [
        (place >= len(alone), num_bytes, place)
        for place, sizes in enumerate(tried)
        if sizes not in tried[:place] and (num_bytes := limits.bytes_at(sizes, *room)) is not None
    ]
    return [tried[place] for _, _, place in sorted(allowed)][:_MOST_TO_TURN]


def cheap_room(reference: Reference) -> Room:
    """Return room for a run about as long as one at the run sizes."""
    need = need_of(reference.problem, reference.sizes)
    return _CHEAPLY if need is None else Room(*map(max, _CHEAPLY, (4 * need.num_bytes, 4 * need.operations)))


def in_order(reference: Reference, sizes: Sizes) -> Sizes | None:
    """The nearest sizes in the order that the run sizes and the problem's own sizes share, such as fewer rows
    taken than there are: a kernel may rely on it. None where the sizes are in that order."""
    own, run, now = (_whole(constants) for constants in (reference.problem.constants, reference.sizes, sizes))
    pairs = [
        (less, more)
        for less, more in itertools.permutations(run, 2)
        if run[less] < run[more] and _CLEARLY * own[less] <= own[more]
    ]
    broken = [(less, more) for less, more in pairs if now[less] >= now[more]]
    if not broken:
        return None
    ordered, limits = dict(sizes), _SizeLimits(reference)
    for less, more in broken:
        wider = sorted(_halved(own[more], run[more]))
        tried: list[Sizes] = [
            limits.resized(limits.resized(ordered, less, n), more, m)
            for n in _halved(now[less], run[less])
            for m in itertools.islice((m for m in wider if m > n), 1)
        ]
        kept = limits.resized(ordered, less, run[less])
        ordered = next(
            (wider_sizes for wider_sizes in tried if limits.allow(wider_sizes, _MOST_BYTES_OF_LAST)), kept
        )
    return ordered


def _whole(sizes: Mapping[str, Constant]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if type(size) is int}


def _may_grow(reference: Reference, limits: _SizeLimits) -> list[str]:
    """Names of the sizes that are smaller than the problem's own, one of those that change together."""
    own = reference.problem.constants
    return [
        name
        for name, size in reference.sizes.items()
        if type(size) is int and type(own[name]) is int and size < int(own[name]) and limits.leads(name)
    ]


def _halved(own: Constant, run: Constant) -> Iterator[int]:
    """The own size, its half and so on, while it is more than the run size, in steps that divide both."""
    assert isinstance(own, int) and isinstance(run, int)
    step = math.gcd(own, run)
    while own > run:
        yield own
        own = own // (2 * step) * step


def _small(own: Constant, run: Constant) -> int:
    """The smallest size with the divisors of the own size, and those that it shares with the run size."""
    assert isinstance(own, int) and isinstance(run, int)
    while own % (2 * math.gcd(own, run)) == 0 and own // 2 >= max(run, _SHOWS_HOW_IT_DIVIDES):
        own //= 2
    return own


class _SizeLimits:
    """Limits of the reference's bytes and operations, reckoned without data, and how its sizes belong
    together."""

    def __init__(self, reference: Reference) -> None:
        self._problem = reference.problem
        self._shared = SharedSizes(reference.problem)
        self._at_run_sizes = need_of(self._problem, reference.sizes)

    def resized(self, sizes: Mapping[str, Constant], name: str, size: Constant) -> Sizes:
        """Return the sizes with another size for a name and for all that change with it."""
        return {**sizes, **self._shared.with_size(name, size)}

    def leads(self, name: str) -> bool:
        """Return True for the first of the names that change together."""
        return self._shared.leads(name)

    def thinned(self, sizes: Sizes) -> Sizes:
        """Return about a sixteenth of each size, or a quarter, where that needs fewer bytes and leaves widths
        of at least `_LEAST_WIDTH`: a kernel may rely on a width, such as that of a head."""
        now, thin, own = need_of(self._problem, sizes), Sizes(), self._problem.constants
        if now is None:
            return thin
        for name, size in _whole(sizes).items():
            for smaller in filter(None, (divided(size, 16), divided(size, 4))):
                change = self._shared.with_size(name, smaller)
                if not self._shared.keep_multiples(own | change):
                    continue
                need = need_of(self._problem, {**sizes, **change})
                if need is None or need.num_bytes >= now.num_bytes or need.broadcasts_more_than(now):
                    continue
                pairs = zip(now.widths, need.widths, strict=False)
                if all(width >= min(before, _LEAST_WIDTH) for before, width in pairs):
                    thin |= change
                    break
        return thin

    def allow(self, sizes: Sizes, most_bytes: int) -> bool:
        """True if these sizes are small enough and fit together."""
        return self.bytes_at(sizes, most_bytes, _MOST_OPERATIONS) is not None

    def bytes_at(self, sizes: Sizes, most_bytes: int, most_operations: int) -> int | None:
        """Return the bytes at sizes that are small enough and fit together as the run sizes do. If a
        reference needs data, only its inputs count."""
        most_bytes *= 2 if wanted_gradients(self._problem.source) else 1  # as large as what they belong to
        inputs = inputs_at(self._problem, sizes)
        if inputs is None or tensor_bytes(inputs) > most_bytes:
            return None
        if self._at_run_sizes is None:
            return tensor_bytes(inputs)
        need = need_of(self._problem, sizes)
        if need is None or need.broadcasts_more_than(self._at_run_sizes):
            return None
        is_small = need.num_bytes <= most_bytes and need.operations <= most_operations
        return need.num_bytes if is_small else None
