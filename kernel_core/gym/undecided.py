"""Integers and booleans among a reference's outputs that nothing decides, so that a candidate may give any.

Which of equal values comes first in a sort, to which side of a half a quotient rounds, and whether a sum that
cancels is above zero, is nobody's to say. Such values are others in float64, or become others when results
stray by less than float32 tells; what is exact decides, so that a half among the inputs rounds as torch says.
Of the largest and smallest of equal values torch promises the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_core.gym.dispatch import LightDispatchMode
from kernel_core.gym.operators import tensors_in
from kernel_core.gym.strays import Forward, Straying, opposite_pairs

_FIRST_OF_EQUALS = {f"aten::{name}" for name in ("argmax", "argmin", "max", "min", "cummax", "cummin")}
_PAIRS = 12
"""They turn every pair of equals; which of an odd number of equals is in the middle is left to chance."""


def is_discrete(leaf: Any) -> bool:
    """Whether it is a tensor of integers or booleans."""
    return isinstance(leaf, torch.Tensor) and not (leaf.is_floating_point() or leaf.is_complex())


def look_for_undecided(
    found: Sequence[torch.Tensor], forward: Forward, inputs: list[Any], seed: int, *, tf32: bool
) -> None:
    """Mark in `found`, for each output, what becomes another when results stray; of outputs of floating-point
    numbers it means nothing. With `tf32` products may be of that precision."""
    with _Choices() as choices:
        known = forward(inputs)
    if not choices.are_free and not tf32:
        return
    for generator, sign in opposite_pairs(_PAIRS, seed, found[0].device):
        with Straying(generator, sign=sign, tf32=tf32):
            leaves = forward(inputs)
        for mask, leaf, other in zip(found, leaves, known, strict=True):
            if leaf.shape == mask.shape == other.shape:
                mask |= leaf != other


class _Choices(LightDispatchMode):
    """While active, looks for operators that make something else of floating-point numbers as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.are_free = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.are_free |= (
            function._schema.name not in _FIRST_OF_EQUALS
            and any(is_discrete(tensor) for tensor in tensors_in(result))
            and any(tensor.is_floating_point() for tensor in tensors_in(list(args)))
        )
        return result
