"""Invariants of a problem's own draws of a tensor, which every other draw keeps.

A kernel may rely on them: knots are in order, a matrix is triangular, a mask is 0 or 1, probabilities sum to
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

_ENOUGH = 16
"""Two draws of fewer elements may be alike by chance."""
_SHORTEST_ROW = 4
_SUM_ERROR = 1e-2
"""The error of a sum in half precision."""


@dataclass(frozen=True, slots=True)
class Look:
    """Properties of one draw that another draw may share."""

    zeros: torch.Tensor | None = None
    """The places of zeros, if there are any."""
    two_values: tuple[float, float] | None = None
    """The two values that all elements have."""
    is_rising: bool = False
    sums_to_one: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Invariants of all draws of a tensor."""

    zeros: bool = False
    """At the same places."""
    two_values: bool = False
    """Whether the tensor has two values, as a mask does. They select, as integers do, and stay as the problem
    draws them."""
    is_rising: bool = False
    """Along the last dimension, in each row."""
    sums_to_one: bool = False
    """Each row, of nothing below zero."""

    def impose(self, values: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
        """The drawn values with the invariants imposed, in place where possible; `zeros` are the tensor's
        own."""
        if zeros is not None:
            values.masked_fill_(zeros, 0.0)
        if self.sums_to_one:
            values.abs_()
            values.masked_fill_(values.sum(-1, keepdim=True) == 0, 1.0)
            values.div_(values.sum(-1, keepdim=True))
        return values.sort(-1)[0] if self.is_rising else values


def look_at(values: torch.Tensor) -> Look:
    """Constants have nothing in common that others keep: they are like weights that begin as one number."""
    if not values.numel():
        return Look()
    least, most = (end.item() for end in values.aminmax())
    if not least < most:
        return Look()
    if _holds(lambda part: ((part == least) | (part == most)).all(), values):
        return Look(two_values=(least, most))
    if values.numel() < _ENOUGH:
        return Look()
    zeros = values == 0 if least <= 0 <= most else None
    has_rows = values.shape[-1] >= _SHORTEST_ROW
    return Look(
        zeros=zeros if zeros is not None and zeros.any() else None,
        is_rising=has_rows and _holds(_is_rising, values),
        sums_to_one=has_rows and least >= 0 and _holds(_sums_to_one, values),
    )


def in_common(one: Look, other: Look) -> Kept:
    """The invariants that two draws share."""
    return Kept(
        zeros=one.zeros is not None and other.zeros is not None and torch.equal(one.zeros, other.zeros),
        two_values=one.two_values is not None and one.two_values == other.two_values,
        is_rising=one.is_rising and other.is_rising,
        sums_to_one=one.sums_to_one and other.sums_to_one,
    )


def _holds(test: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> bool:
    """Asked of the first row first: large tensors have no room for what tests make."""
    return bool(test(values[:1])) and bool(test(values))


def _is_rising(rows: torch.Tensor) -> torch.Tensor:
    return (rows[..., 1:] >= rows[..., :-1]).all()


def _sums_to_one(rows: torch.Tensor) -> torch.Tensor:
    return ((rows.sum(-1, dtype=torch.float32) - 1).abs() < _SUM_ERROR).all()
