"""The families of inputs and their names; `input_generators` draws them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of numbers, and what a problem may not accept of it."""

    kind: str
    turned: bool = False
    """Mixed slices lie along another dimension than the first."""
    zeros: bool = True
    """There are zeros; among mixed numbers slices of zeros and of equal values."""
    large: bool = True
    """There are values that lie far from zero."""
    ties: bool = True
    """Some mixed slices have equal values. Without zeros and ties no gradient is at a bend or a kink."""

    @property
    def name(self) -> str:
        """The name in a draw, from which seeds follow."""
        match self.kind:
            case "mixed":
                words = (
                    *((self.turned, "turned"), (not self.large, "moderate")),
                    *((self.ties and not self.zeros, "nonzero"), (not self.ties, "smooth")),
                )
                return "_".join(word for is_said, word in words if is_said) or "mixed"
            case "positive":
                return "positive_with_zeros" if self.zeros else "positive"
            case "negative":
                return "far_negative" if self.large else "negative"
        return self.kind


_FLAGS = (False, True)
_PLAIN = ("own", "normal", "unit", "over_minus_one", "within_one", "wide", "integers", "edges")
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *map(Family, _PLAIN),
        *(Family("mixed", *flags) for flags in itertools.product(_FLAGS, repeat=3)),
        *(Family("mixed", *flags, ties=False) for flags in itertools.product(_FLAGS, (False,), _FLAGS)),
        *(Family("positive", zeros=flag) for flag in _FLAGS),
        *(Family("negative", large=flag) for flag in _FLAGS),
    )
}
"""All families by their names."""
Draw = str
"""A family of all floating-point tensors, or, with `_AND` between them, one for each of these in turn."""
_AND = ", "
DRAWS: tuple[Draw, ...] = ("own", "normal", "mixed", "positive", "wide", "integers", "edges")
"""The families of an audit. The other families are variants for problems that do not accept these."""
HOSTILE: tuple[Draw, ...] = (
    *("mixed", "nonzero", "moderate", "moderate_nonzero", "normal", "over_minus_one", "within_one"),
    *("positive_with_zeros", "positive", "unit"),
)
"""Candidates for the last trial; the first family with finite reference outputs is taken. The last ones are
for functions with a domain: positive numbers, numbers up to one, or numbers above minus one."""
HOSTILE_TO_GRADIENTS: tuple[Draw, ...] = (
    *("smooth", "moderate_smooth", "normal", "over_minus_one", "within_one", "positive"),
)
"""The same for problems with gradients. A maximum of equal values has many, and so has a ReLU at zero."""
ONE_SIGNED, FAR = "negative", "far_negative"
"""The first trial, and beyond the contract of most problems. In other families no slice of a tensor with both
signs spans all of it."""


def in_words(draw: Draw) -> str:
    """The inputs of a draw, for feedback about what failed."""
    words = {_in_words(FAMILIES[name]) for name in families_in(draw) if name != "own"}
    return words.pop() if len(words) == 1 else "inputs of other sizes and signs"


def _in_words(family: Family) -> str:
    match family.kind:
        case "mixed":
            return "inputs of mixed sizes and signs" + ", some near ±100" * family.large
        case "negative":
            return "inputs all negative" + ", some below -256" * family.large
        case "positive":
            return "inputs all positive"
    return f"{family.name} inputs".replace("_", " ")


def is_far(draw: Draw) -> bool:
    """Return True if there are numbers beyond the range of exponentials."""
    families = [FAMILIES[name] for name in families_in(draw)]
    return any(family.large and family.kind in ("mixed", "negative") for family in families)


def moderate(families: Sequence[Draw]) -> tuple[Draw, ...]:
    """The families without such numbers."""
    return tuple(name for name in families if not is_far(name))


def turned(draw: Draw) -> Draw:
    """The draw for the replay of a pass that was recorded with this draw: the same along another dimension. A
    matrix cannot have a row that is negative throughout and a column that is positive throughout."""
    return _with_mixed(draw, lambda family: replace(family, turned=True))


def without_zeros(draw: Draw) -> Draw:
    """The same draw under the same seed, without slices of zeros or of equal values."""
    return _with_mixed(draw, lambda family: replace(family, zeros=False))


def _with_mixed(draw: Draw, change: Callable[[Family], Family]) -> Draw:
    families = (FAMILIES[name] for name in families_in(draw))
    return _AND.join((change(family) if family.kind == "mixed" else family).name for family in families)


def families_in(draw: Draw) -> list[str]:
    """The families of a draw: one for all tensors, or one for each."""
    return draw.split(_AND)


def families_of(draw: Draw) -> Iterator[str]:
    """The family for one floating-point tensor after another."""
    families = families_in(draw)
    return iter(families) if len(families) > 1 else itertools.repeat(draw)


def hostile_draw(
    takes: Callable[[Draw], bool], families: Sequence[Draw], count_tensors: Callable[[], int]
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
