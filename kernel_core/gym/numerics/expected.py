"""One expected output of a trial, and its tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch

from kernel_core.gym.numerics.error_model import allowed_error

Places = torch.Tensor | slice
"""Positions in a flat output."""


class Choice(Protocol):
    """The allowed values at ambiguous places."""

    def allows(self, output: torch.Tensor) -> torch.Tensor:
        """At which places of an output there is what may stand there."""
        ...


class Rounding(Protocol):
    """The error of honest arithmetic, which is allowed beyond the relative tolerance."""

    def at(self, places: Places) -> Rounding:
        """The same for a part of the output."""
        ...

    def error(self, true: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        """The error that is allowed at each value; `most` is the largest by size."""
        ...


@dataclass(frozen=True, slots=True)
class BySize:
    """The same error for values of the same size: see `error_model.allowed_table`."""

    table: torch.Tensor | float = 0.0

    def at(self, places: Places) -> BySize:
        """See `Rounding`."""
        return self

    def error(self, true: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        """See `Rounding`."""
        return torch.minimum(allowed_error(self.table, true), most)


@dataclass(frozen=True, slots=True)
class Loose:
    """The largest error at some places, or everywhere: see `Reference.exactly`."""

    elsewhere: Rounding
    places: torch.Tensor | None = None

    def at(self, places: Places) -> Loose:
        """See `Rounding`."""
        return Loose(self.elsewhere.at(places), None if self.places is None else _part(self.places, places))

    def error(self, true: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        """See `Rounding`."""
        if self.places is None:
            return most
        return torch.where(self.places, most, self.elsewhere.error(true, most))


@dataclass(frozen=True, slots=True)
class Spread:
    """At each value the error that its last bits may cause, whatever its size: see `random_rounding.py`."""

    rounding: Rounding
    spread: torch.Tensor

    def at(self, places: Places) -> Spread:
        """See `Rounding`."""
        return Spread(self.rounding.at(places), _part(self.spread, places))

    def error(self, true: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        """Chance also changes rounded values; for small spreads the rounding is the cause."""
        honest = self.rounding.error(true, most)
        is_chance = self.spread > most
        return torch.where(is_chance, honest + self.spread, torch.maximum(honest, self.spread))


@dataclass(frozen=True, slots=True)
class Undecided:
    """The ambiguous integers and booleans of an output: see `ambiguous_integers.py`."""

    places: torch.Tensor
    choice: Choice | None = None
    """None allows every value. A choice covers the whole output, so a part has none."""

    def at(self, places: Places) -> Undecided:
        """The same for a part of the output."""
        return Undecided(_part(self.places, places))

    def chosen(self, output: torch.Tensor) -> Undecided:
        """The places where a known output has an allowed value."""
        return self if self.choice is None else Undecided(self.places & self.choice.allows(output))


@dataclass(frozen=True, slots=True)
class Expected:
    """One output: its form, its value, and what is accepted beside that value."""

    dtype: str
    shape: tuple[int, ...]
    value: torch.Tensor
    """Without data where it is made again rather than kept: see `Reference.with_values`."""
    tolerance: Rounding | Undecided = BySize()

    def at(self, places: Places) -> Expected:
        """The expected values at some places of the flat output, as an output of its own."""
        value = _part(self.value, places)
        return replace(self, shape=tuple(value.shape), value=value, tolerance=self.tolerance.at(places))

    def chosen(self, output: torch.Tensor) -> Expected:
        """The expected output for a known answer with allowed choices."""
        if not isinstance(self.tolerance, Undecided):
            return self
        return replace(self, tolerance=self.tolerance.chosen(output))

    def loose(self, places: torch.Tensor | None = None) -> Expected:
        """The same, with the largest error at some places, or everywhere."""
        if isinstance(self.tolerance, Undecided):
            return self
        return replace(self, tolerance=Loose(self.tolerance, places))

    def spread(self, spread: torch.Tensor) -> Expected:
        """The same, with the error that last bits may cause at each value."""
        if isinstance(self.tolerance, Undecided):
            return self
        return replace(self, tolerance=Spread(self.tolerance, spread))


def _part(values: torch.Tensor, places: Places) -> torch.Tensor:
    return values.reshape(-1)[places]
