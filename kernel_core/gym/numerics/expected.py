"""One expected output of a trial, and its tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from kernel_core.gym.numerics.error_model import allowed_error

Places = torch.Tensor | slice
"""Positions in a flat output."""


class Choice(Protocol):
    """The allowed values at ambiguous places."""

    def allows(self, output: torch.Tensor) -> torch.Tensor:
        """At which places of an output there is what may stand there."""
        ...


@dataclass(frozen=True, slots=True)
class Rounding:
    """The error of honest arithmetic, which is allowed beyond the relative tolerance."""

    by_size: torch.Tensor | float = 0.0
    """The same for values of the same size: see `error_model.allowed_table`."""
    loose: torch.Tensor | bool = False
    """Places with the largest error that is ever allowed by size."""
    spread: torch.Tensor | float = 0.0
    """The error that its last bits may cause at each value: see `random_rounding.py`."""
    strict_by_size: torch.Tensor | float = 0.0
    """`by_size` without what TF32 products may err."""

    def at(self, places: Places) -> Rounding:
        """The same for a part of the output."""
        loose, spread = _part(self.loose, places), _part(self.spread, places)
        return replace(self, loose=loose, spread=spread)

    def error(self, true: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        """The error that is allowed at each value; `most` is the largest by size."""
        honest = torch.minimum(allowed_error(self.by_size, true), most)
        if self.loose is not False:
            honest = torch.where(torch.as_tensor(self.loose, device=most.device), most, honest)
        if not isinstance(self.spread, torch.Tensor):
            return honest
        # Chance also changes rounded values; for small spreads the rounding is the cause.
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
    tolerance: Rounding | Undecided = Rounding()
    is_field: bool = False
    """The value is compared as by `torch.allclose`, with absolute and relative tolerance alike."""

    def at(self, places: Places) -> Expected:
        """The expected values at some places of the flat output, as an output of its own."""
        value = _part(self.value, places)
        return replace(self, shape=tuple(value.shape), value=value, tolerance=self.tolerance.at(places))

    def chosen(self, output: torch.Tensor) -> Expected:
        """The expected output for a known answer with allowed choices."""
        if not isinstance(self.tolerance, Undecided):
            return self
        return replace(self, tolerance=self.tolerance.chosen(output))

    def rounding(self, times: float = 1.0) -> Rounding:
        """The errors by size, or a multiple of them; none for ambiguous integers and booleans."""
        tolerance = self.tolerance
        if isinstance(tolerance, Undecided):
            return Rounding()
        return Rounding(times * tolerance.by_size, strict_by_size=times * tolerance.strict_by_size)

    def strictly(self) -> Expected:
        """Return the same without what TF32 products may err; ambiguous integers stay as they are."""
        if isinstance(self.tolerance, Undecided):
            return self
        return replace(self, tolerance=replace(self.tolerance, by_size=self.tolerance.strict_by_size))

    def allowing(self, **parts: torch.Tensor | bool) -> Expected:
        """The same with these parts of its `Rounding`; ambiguous integers and booleans stay as they are."""
        if isinstance(self.tolerance, Undecided):
            return self
        return replace(self, tolerance=replace(self.tolerance, **parts))


def _part(values: Any, places: Places) -> Any:
    """Some places of a flat tensor; anything else is the same for all."""
    return values.reshape(-1)[places] if isinstance(values, torch.Tensor) else values
