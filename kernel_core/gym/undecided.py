"""Integers among a reference's outputs that nothing decides, so that a candidate may give any.

Which of equal values comes first in a sort, and to which side of a half a quotient rounds, is nobody's
to say. Such integers are others in float64, or become others when inputs change by less than float32 tells.
Of the largest and smallest of equal values torch promises the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_core.gym.dispatch import LightDispatchMode
from kernel_core.gym.inputs import nudged
from kernel_core.gym.operators import tensors_in

_FIRST_OF_EQUALS = {f"aten::{name}" for name in ("argmax", "argmin", "max", "min", "cummax", "cummin")}
_NUDGES = 8
"""One alone leaves half of all pairs as they were."""


def is_integer(leaf: Any) -> bool:
    """Whether it is a tensor of integers, which booleans are not."""
    return isinstance(leaf, torch.Tensor) and not (
        leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool
    )


def find_undecided(
    forward: Callable[[list[Any]], list[Any]],
    inputs: list[Any],
    plain: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    seed: int,
) -> list[torch.Tensor]:
    """For each output, where nothing decides it; of those of floating-point numbers it means nothing.

    `forward` gives the outputs for inputs in float64; `plain` and `exact` are those of the reference's own
    arithmetic and of float64 for `inputs`.
    """
    generator = torch.Generator(plain[0].device).manual_seed(seed)
    found = [one != other for one, other in zip(plain, exact, strict=True)]
    for _ in range(_NUDGES):
        with _Choices() as choices:
            leaves = forward(nudged(inputs, generator))
        if not choices.are_free:
            break
        for mask, leaf, known in zip(found, leaves, exact, strict=True):
            if leaf.shape == known.shape:
                mask |= leaf != known
    return found


class _Choices(LightDispatchMode):
    """While active, looks for operators that make integers of floating-point numbers as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.are_free = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.are_free |= (
            function._schema.name not in _FIRST_OF_EQUALS
            and any(is_integer(tensor) for tensor in tensors_in(result))
            and any(tensor.is_floating_point() for tensor in tensors_in(list(args)))
        )
        return result
