"""One draw of inputs and its expected outputs: a judge knows them, a candidate does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernel_core.gym.channel.torch_ops import map_tensors, tensors_in
from kernel_core.gym.numerics.expected import Expected
from kernel_core.gym.oracle.input_families import Draw


@dataclass(frozen=True, slots=True)
class Trial:
    """One draw of inputs and the reference's outputs for it."""

    draw: Draw
    seed: int
    inputs: list[Any]
    """Empty where they are drawn again rather than kept: see `Reference.inputs_of`."""
    nesting: Any
    expected: tuple[Expected, ...]
    left: tuple[Expected, ...]
    """The contents of the inputs after the reference, where it writes to them. A candidate must leave the
    same, or not touch them."""
    is_exact: bool
    """The expected values and tolerances are by float64's answer to these inputs, where there is one."""
    is_usual: bool
    """Outputs, in the reference's own arithmetic and in float64, are finite but where those of own draws are
    not, and integers come of numbers that they hold; of own draws it is not asked."""

    @property
    def changes_inputs(self) -> bool:
        """True if the reference itself writes to its inputs."""
        return bool(self.left)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors that are kept."""
        return tensor_bytes([*self.inputs, *(leaf.value for leaf in (*self.expected, *self.left))])

    @property
    def has_values(self) -> bool:
        """True if the expected outputs were kept."""
        return not any(leaf.value.is_meta for leaf in self.expected)


def loose(trial: Trial) -> Trial:
    """The trial with as much allowed everywhere as ever is."""
    return replace(trial, expected=tuple(leaf.allowing(loose=True) for leaf in trial.expected))


def outline(trial: Trial) -> Trial:
    """The trial without its numbers: what shapes and types there are, and how large it is."""
    expected, left = (
        tuple(replace(leaf, value=leaf.value.to("meta"), tolerance=leaf.rounding()) for leaf in part)
        for part in (trial.expected, trial.left)
    )
    inputs = [map_tensors(value, lambda tensor: tensor.to("meta")) for value in trial.inputs]
    return replace(trial, inputs=inputs, expected=expected, left=left)


def tensor_bytes(values: Sequence[Any]) -> int:
    """The bytes of the tensors among the values."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(list(values)))


def is_finite(leaf: Any) -> bool:
    """Return True if an output has no infinity and no NaN; whole numbers have none."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or not leaf.numel():
        return True
    wide = leaf if leaf.element_size() > 1 else leaf.float()  # torch finds no ends of 8-bit floats
    return all(math.isfinite(end.item()) for end in wide.aminmax())  # both are NaN if any element is
