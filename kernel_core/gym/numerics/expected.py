"""One expected output of a trial, and how far a candidate's may be from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch


class Choice(Protocol):
    """What may stand where nothing decides."""

    def allows(self, output: torch.Tensor) -> torch.Tensor:
        """At which places of an output there is what may stand there."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """One output: what it must look like, its value, and how far honest arithmetic strays from it."""

    dtype: str
    shape: tuple[int, ...]
    value: torch.Tensor
    """Without data where it is made again rather than kept: see `Reference.expected_of`."""
    allowance: torch.Tensor | float
    """Beyond the tolerance, by size: see `error_model.allowed_table`."""
    loose: torch.Tensor | bool = False
    """Where as much is allowed as ever is: see `Reference.loosened` and `loose`."""
    spread: torch.Tensor | None = None
    """The error that is allowed at each value whatever its size: see `Reference.blurred`."""
    undecided: torch.Tensor | None = None
    """The ambiguous integers and booleans. See `ambiguous_integers.py`."""
    choice: Choice | None = None
    """What those may be; None where they may be any."""

    def at(self, places: torch.Tensor | slice) -> Expected:
        """What is expected at some places of the flat output, as an output of its own; what is undecided may
        be any there, because a choice is of the whole."""

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
        """What is expected of an output that may have chosen where nothing decides, and is known now."""
        if self.undecided is None or self.choice is None:
            return self
        return replace(self, undecided=self.undecided & self.choice.allows(output), choice=None)
