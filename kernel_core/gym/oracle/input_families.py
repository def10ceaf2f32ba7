"""The families of inputs by their names; `inputs` makes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

Family = Literal[
    "own",
    "normal",
    "mixed",
    "nonzero",
    "moderate",
    "moderate_nonzero",
    "turned",
    "turned_nonzero",
    "turned_moderate",
    "turned_moderate_nonzero",
    "negative",
    "far_negative",
    "positive",
    "positive_with_zeros",
    "unit",
    "over_minus_one",
    "within_one",
    "wide",
    "integers",
    "edges",
]
Draw = str
"""A family of all floating-point tensors, or, with `_AND` between them, one for each of these in turn."""
_AND = ", "
DRAWS: tuple[Draw, ...] = ("own", "normal", "mixed", "positive", "wide", "integers", "edges")
"""The families of an audit. The other families are variants for problems that do not accept these."""
HOSTILE: tuple[Family, ...] = (
    "mixed",
    "nonzero",
    "moderate",
    "moderate_nonzero",
    "normal",
    "over_minus_one",
    "within_one",
    "positive_with_zeros",
    "positive",
    "unit",
)
"""Candidates for the last trial; the first family with finite reference outputs is taken. The last ones are
for functions with a domain: positive numbers, numbers up to one, or numbers above minus one."""
ONE_SIGNED: tuple[Family, ...] = ("far_negative", "negative")
"""Candidates for the first trial. In other families no slice of a tensor with both signs spans all of it."""
_TURNED: dict[str, Family] = {
    "mixed": "turned",
    "nonzero": "turned_nonzero",
    "moderate": "turned_moderate",
    "moderate_nonzero": "turned_moderate_nonzero",
}
_WITHOUT_ZEROS: dict[str, Family] = {
    "mixed": "nonzero",
    "moderate": "moderate_nonzero",
    "turned": "turned_nonzero",
    "turned_moderate": "turned_moderate_nonzero",
}


def turned(draw: Draw) -> Draw:
    """The draw for the replay of a pass that was recorded with this draw: the same along another dimension. A
    matrix cannot have a row that is negative throughout and a column that is positive throughout."""
    return _AND.join(_TURNED.get(family, family) for family in draw.split(_AND))


def without_zeros(draw: Draw) -> Draw:
    """The same draw under the same seed, without slices of zeros or of equal values."""
    return _AND.join(_WITHOUT_ZEROS.get(family, family) for family in draw.split(_AND))


def families_in(draw: Draw) -> list[str]:
    """The families of a draw: one for all tensors, or one for each."""
    return draw.split(_AND)


def families_of(draw: Draw) -> Iterator[str]:
    """The family for one floating-point tensor after another."""
    families = families_in(draw)
    return iter(families) if len(families) > 1 else itertools.repeat(draw)


def hostile_draw(
    takes: Callable[[Draw], bool], families: Sequence[Family], count_tensors: Callable[[], int]
) -> Draw | None:
    """The first family that the reference takes for all its tensors; else for each tensor the first that it
    takes beside what was found for those before it, with the others as the problem draws them. None where no
    tensor can have any. One that must be positive does not make the others so."""
    if takes(families[0]):
        return families[0]
    chosen: list[str] = ["own"] * count_tensors()
    for index in range(len(chosen)):
        tried = ((family, _joined([*chosen[:index], family, *chosen[index + 1 :]])) for family in families)
        chosen[index] = next((family for family, draw in tried if takes(draw)), "own")
    return None if set(chosen) <= {"own"} else _joined(chosen)


def _joined(families: Sequence[str]) -> Draw:
    return families[0] if len(set(families)) == 1 else _AND.join(families)
