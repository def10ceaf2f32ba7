"""One expected output of a trial, and its tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch


class Choice(Protocol):
    """The allowed values at ambiguous places."""

    def allows(self, output: torch.Tensor) -> torch.Tensor:
        """At which places of an output there is what may stand there."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """One output: its form, its value, and the error of honest arithmetic."""

    dtype: str
    shape: tuple[int, ...]
    value: torch.Tensor
    """Without data where it is made again rather than kept: see `Reference.expected_of`."""
    allowance: torch.Tensor | float
    """The error that is allowed beyond the tolerance, by size: see `error_model.allowed_table`."""
    loose: torch.Tensor | bool = False
    """Places with the largest allowance: see `Reference.loosened` and `loose`."""
    spread: torch.Tensor | None = None
    """The error that is allowed at each value whatever its size: see `Reference.blurred`."""
    undecided: torch.Tensor | None = None
    """The ambiguous integers and booleans. See `ambiguous_integers.py`."""
    choice: Choice | None = None
    """The allowed values of ambiguous places; None if every value is allowed."""

    def at(self, places: torch.Tensor | slice) -> Expected:
        """The expected values at some places of the flat output, as an output of its own. Ambiguous places
        may hold any value there, because a choice covers the whole output."""

        def part(one: Any) -> Any:
            return one.reshape(-1)[places] if isinstance(one, torch.Tensor) else one

        value = part(self.value)
        return replace(
            self,
            shape=tuple(value.shape),
            value=value,
            loose=part(self.loose),
            spread=part(self.spread),
            undecided=part(self.undecided),
            choice=None,
        )

    def chosen(self, output: torch.Tensor) -> Expected:
        """The expected output for a known answer with allowed choices."""
        if self.undecided is None or self.choice is None:
            return self
        return replace(self, undecided=self.undecided & self.choice.allows(output), choice=None)
