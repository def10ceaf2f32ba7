"""One draw of inputs and what is expected of it: what a judge knows and a candidate does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernel_core.gym.draws import Draw
from kernel_core.gym.operators import map_tensors, tensors_in
from kernel_core.gym.undecided import Choice


@dataclass(frozen=True, slots=True)
class Expected:
    """One output: what it must look like, its value, and how far honest arithmetic strays from it."""

    dtype: str
    shape: tuple[int, ...]
    value: torch.Tensor
    """Without data where it is made again rather than kept: see `Reference.expected_of`."""
    allowance: torch.Tensor | float
    """Beyond the tolerance, by size: see `precision.allowed_table`."""
    loose: torch.Tensor | bool = False
    """Where as much is allowed as ever is: see `Reference.loosened` and `loose`."""
    spread: torch.Tensor | None = None
    """What is allowed at each value however large it is: see `Reference.blurred`."""
    undecided: torch.Tensor | None = None
    """Of integers and booleans: those that nothing decides. See `undecided.py`."""
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


@dataclass(frozen=True, slots=True)
class Trial:
    """One draw of inputs and what the reference makes of it."""

    draw: Draw
    seed: int
    inputs: list[Any]
    """Empty where they are drawn again rather than kept: see `Reference.inputs_of`."""
    nesting: Any
    expected: tuple[Expected, ...]
    left: tuple[Expected, ...]
    """What the reference leaves in its inputs' tensors, where it writes to them: a candidate leaves that, or
    does not touch them."""
    is_usual: bool
    """Outputs, in the reference's own arithmetic and in float64, are finite but where those of own draws are
    not; of own draws it is not asked."""

    @property
    def changes_inputs(self) -> bool:
        """Whether the reference itself writes to its inputs."""
        return bool(self.left)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors that are kept."""
        return tensor_bytes([*self.inputs, *(one.value for one in (*self.expected, *self.left))])

    @property
    def has_values(self) -> bool:
        """Whether the expected outputs were kept."""
        return not any(one.value.is_meta for one in self.expected)


def loose(trial: Trial) -> Trial:
    """The trial with as much allowed everywhere as ever is."""
    return replace(trial, expected=tuple(replace(one, loose=True) for one in trial.expected))


def outline(trial: Trial) -> Trial:
    """The trial without its numbers: what shapes and types there are, and how large it is."""
    expected, left = (
        tuple(replace(one, value=one.value.to("meta"), undecided=None, choice=None) for one in part)
        for part in (trial.expected, trial.left)
    )
    inputs = [map_tensors(value, lambda tensor: tensor.to("meta")) for value in trial.inputs]
    return replace(trial, inputs=inputs, expected=expected, left=left)


def tensor_bytes(values: Sequence[Any]) -> int:
    """Of the tensors among them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(list(values)))
