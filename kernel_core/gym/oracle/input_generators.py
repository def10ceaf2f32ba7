"""Families of inputs: what a problem draws itself, and what its own draws would not show.

All 250 of KernelBench's problems draw from [0, 1): there a sign, a clamp or a whole operator can be left
out unnoticed. The other families keep a problem's shapes and types and redraw its floating-point tensors.
Integers and booleans stay the problem's own draws, because they index and select; so does a tensor of two
values. What the contract of the inputs says stays, too: see `input_invariants.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_core.gym.channel.shared_arena import order_in_memory
from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.oracle.input_families import FAMILIES, Draw, families_of
from kernel_core.gym.oracle.input_invariants import Kept, Look, look_at
from kernel_core.gym.oracle.mixed_inputs import KINDS, Mixed

_WIDE_EXPONENTS, _POSITIVE_EXPONENTS = 8.0, 4.0
_EDGE_SHARE = 0.1
_AWAY_FROM_ZERO, _FAR = 0.5, 512.0
_NEAR_ONE = 0.98
"""Below one in every precision."""
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0**-14, -(2.0**-14), 100.0, -100.0)


def redraw(values: list[Any], draw: Draw, kept: Sequence[Kept] = ()) -> list[Any]:
    """`values` with their floating-point tensors from other families, under torch's global generator; what
    each of them has in common with other own draws is `kept`. The list is emptied, because large tensors have
    no room beside one another."""
    if draw == "own":
        return values
    return _Redrawing(draw, kept).all_of(values)


class _Redrawing:
    """One draw, a tensor at a time."""

    def __init__(self, draw: Draw, kept: Sequence[Kept]) -> None:
        self._families = families_of(draw)
        self._kept = itertools.chain(kept, itertools.repeat(Kept()))
        self._mixed = Mixed()

    def all_of(self, values: list[Any]) -> list[Any]:
        values.reverse()
        return [self._next_of(values) for _ in range(len(values))]

    def _next_of(self, values: list[Any]) -> Any:
        value = values.pop()
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            family, kept = next(self._families), next(self._kept)
            if family == "own" or kept.as_drawn:
                return value
            shape, dtype, strides = value.shape, value.dtype, order_in_memory(value)
            zeros = value == 0 if kept.zeros else None
            del value
            drawn = kept.impose(self._draw(family, shape), zeros).to(dtype)
            return drawn if strides is None else torch.empty_strided(shape, strides, dtype=dtype).copy_(drawn)
        if isinstance(value, list | tuple):
            return type(value)(self.all_of(list(value)))
        return value

    def _draw(self, name: str, shape: torch.Size) -> torch.Tensor:
        family = FAMILIES[name]
        match family.kind:
            case "mixed":
                return self._mixed.draw(
                    shape, turned=family.turned, zeros=family.zeros, large=family.large, ties=family.ties
                )
            case "positive":
                return _positive(shape, zeros=family.zeros)
            case "negative":
                return _negative(shape, far=family.large)
        return _KINDS[family.kind](shape)


def floating_in(value: Any) -> list[torch.Tensor]:
    """The floating-point tensors that `redraw` would draw, in their order."""
    return [tensor for tensor in tensors_in(value) if tensor.is_floating_point()]


def look_at_all(values: list[Any]) -> list[Look]:
    """At the floating-point tensors."""
    return [look_at(tensor) for tensor in floating_in(values)]


def _negative(shape: torch.Size, *, far: bool) -> torch.Tensor:
    """Negative throughout and not near zero, so that a maximum of all values is negative. One slice is `far`
    below a finite number that stands for minus infinity in padding. No slice lies much farther from zero than
    its own spread, or honest sums of squares would lose it."""
    values = torch.randn(shape).abs_().add_(_AWAY_FROM_ZERO).neg_()
    long = [dim for dim, size in enumerate(shape) if size > KINDS]
    if far and long:
        values.select(long[0], shape[long[0]] // 2).mul_(_FAR)
    return values


def _positive(shape: torch.Size, *, zeros: bool) -> torch.Tensor:
    """Sizes from 2⁻⁴ to 2⁴, on both sides of one: for functions that have no value below zero. Roots have a
    value at zero: for these there are some `zeros`."""
    values = torch.exp2((2 * torch.rand(shape) - 1) * _POSITIVE_EXPONENTS)
    return values.masked_fill_(torch.rand(shape) < _EDGE_SHARE, 0.0) if zeros else values


def _unit(shape: torch.Size) -> torch.Tensor:
    """Numbers from zero to one, a tenth of them zeros and a tenth ones: for probabilities."""
    return torch.rand(shape).mul_(1 + 2 * _EDGE_SHARE).sub_(_EDGE_SHARE).clamp_(0.0, 1.0)


def _over_minus_one(shape: torch.Size) -> torch.Tensor:
    """On both sides of zero, and far above: for functions like log1p."""
    return torch.randn(shape).expm1_().clamp_(min=-_NEAR_ONE)


def _within_one(shape: torch.Size) -> torch.Tensor:
    """On both sides of zero: for functions like atanh."""
    return torch.rand(shape).mul_(2).sub_(1).mul_(_NEAR_ONE)


def _wide(shape: torch.Size) -> torch.Tensor:
    """Sizes from 2⁻⁸ to 2⁸ beside one another: sums lose small terms, exponentials overflow or vanish."""
    return torch.randn(shape) * torch.exp2((2 * torch.rand(shape) - 1) * _WIDE_EXPONENTS)


def _integers(shape: torch.Size) -> torch.Tensor:
    """Small whole numbers: sums and products are exact in every order, so any difference is a fault."""
    return torch.randint(-3, 4, shape).float()


def _edges(shape: torch.Size) -> torch.Tensor:
    """Normal numbers, a tenth of them replaced by those at which functions bend, clamp or divide."""
    special = torch.tensor(_EDGES)[torch.randint(0, len(_EDGES), shape)]
    return torch.where(torch.rand(shape) < _EDGE_SHARE, special, torch.randn(shape))


_KINDS: dict[str, Callable[[torch.Size], torch.Tensor]] = {
    "normal": torch.randn,
    "unit": _unit,
    "over_minus_one": _over_minus_one,
    "within_one": _within_one,
    "wide": _wide,
    "integers": _integers,
    "edges": _edges,
}
