"""Families of inputs: what a problem draws itself, and what its own draws would not show.

All 250 of KernelBench's problems draw from [0, 1): there a sign, a clamp or a whole operator can be left
out unnoticed. The other families keep a problem's shapes and types and redraw its floating-point tensors.
Integers and booleans stay the problem's own draws, because they index and select.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from kernel_core.gym.arena import order_in_memory
from kernel_core.gym.draws import Draw

_WIDE_EXPONENTS, _POSITIVE_EXPONENTS = 8.0, 4.0
_EDGE_SHARE = 0.1
_SCALES = (1.0, 2.0**-6, 8.0, 0.25)
_LARGE, _LARGE_SHARE = 100.0, 1 / 128
_AWAY_FROM_ZERO, _FAR = 0.5, 512.0
_LARGEST_TIE = 1.5
HALF_PRECISION = (torch.float16, torch.bfloat16)
_NEAR_ONE = 0.98
"""Not one in any precision."""
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0**-14, -(2.0**-14), 100.0, -100.0)


def redraw(values: list[Any], draw: Draw) -> list[Any]:
    """`values` with their floating-point tensors from another family, under torch's global generator. The
    list is emptied, because large tensors have no room beside one another."""
    values.reverse()
    return [_redraw(values, draw) for _ in range(len(values))]


def _redraw(values: list[Any], draw: Draw) -> Any:
    value = values.pop()
    if isinstance(value, torch.Tensor) and value.is_floating_point() and draw != "own":
        shape, dtype, strides = value.shape, value.dtype, order_in_memory(value)
        del value
        drawn = _FAMILIES[draw](shape).to(dtype)
        return drawn if strides is None else torch.empty_strided(shape, strides, dtype=dtype).copy_(drawn)
    if isinstance(value, list | tuple):
        return type(value)(redraw(list(value), draw))
    return value


def _normal(shape: torch.Size) -> torch.Tensor:
    """Around zero, with both signs."""
    return torch.randn(shape)


def _mixed(
    shape: torch.Size, *, turned: bool = False, zeros: bool = True, large: bool = True
) -> torch.Tensor:
    """Slices that differ: of several sizes, of one sign, with ties, of zeros, and single values beyond exp's
    range.

    The latter differ, or each part of a row would have its largest. Slices are of the first dimension that
    has enough of them, or, `turned`, of the last: what is reduced along any other dimension has whole
    slices of each kind. A quarter each is of one size, and half of those of plain size are halves, with
    ties at both ends. A quarter is negative throughout and a quarter positive, so that a maximum or a
    minimum is; those of halves keep both signs, because in a small tensor they are one. One slice is of
    zeros, if there are more than four. Sums stay as well conditioned as those of normal numbers: no slice
    lies much farther from zero than its own spread.
    """
    values = torch.randn(shape)
    long = [dim for dim, size in enumerate(shape) if size >= len(_SCALES)]
    dim = long[-1 if turned else 0] if long else 0
    rank = torch.randperm(shape[dim]) if long else torch.empty(0)
    if long:
        along = [-1 if one == dim else 1 for one in range(len(shape))]
        values.mul_(torch.tensor(_SCALES)[rank % len(_SCALES)].reshape(along))
        plain = (rank % (2 * len(_SCALES)) == 0).nonzero().flatten()
        values.index_copy_(dim, plain, _halves(values.index_select(dim, plain)))
    if large:
        flat = values.view(-1)
        places = torch.randint(0, max(1, flat.numel()), (int(_LARGE_SHARE * flat.numel()),))
        small = flat[places]  # of which each large one is made: some places are there twice, in no order
        flat[places] = torch.copysign(_LARGE * (0.75 + 0.5 * (small.abs() % 1.0)), small)
    if long:
        # Of slices in rows of four, one of each row for each sign, of every size in turn, none of halves.
        kind = (rank + rank // len(_SCALES)) % len(_SCALES)
        for sign, of_sign in ((-1.0, kind == 1), (1.0, kind == 3)):
            chosen = of_sign.nonzero().flatten()
            values.index_copy_(dim, chosen, values.index_select(dim, chosen).copysign_(sign))
        if zeros:
            values.index_fill_(dim, (rank == len(_SCALES)).nonzero().flatten(), 0.0)
    return values


def _negative(shape: torch.Size, *, far: bool = False) -> torch.Tensor:
    """Negative throughout and not near zero, so that a maximum of everything is; and one slice `far` below
    what padding is given by those who do not say minus infinity. No slice lies much farther from zero than
    its own spread, or honest sums of squares would lose it."""
    values = torch.randn(shape).abs_().add_(_AWAY_FROM_ZERO).neg_()
    long = [dim for dim, size in enumerate(shape) if size > len(_SCALES)]
    if far and long:
        values.select(long[0], shape[long[0]] // 2).mul_(_FAR)
    return values


def _halves(values: torch.Tensor) -> torch.Tensor:
    return values.mul_(2).round_().div_(2).clamp_(-_LARGEST_TIE, _LARGEST_TIE)


def _positive(shape: torch.Size) -> torch.Tensor:
    """Sizes from 2⁻⁴ to 2⁴, on both sides of one: for functions that have no value below zero."""
    return torch.exp2((2 * torch.rand(shape) - 1) * _POSITIVE_EXPONENTS)


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


_FAMILIES: dict[str, Callable[[torch.Size], torch.Tensor]] = {
    "normal": _normal,
    "mixed": _mixed,
    "nonzero": functools.partial(_mixed, zeros=False),
    "moderate": functools.partial(_mixed, large=False),
    "moderate_nonzero": functools.partial(_mixed, zeros=False, large=False),
    "turned": functools.partial(_mixed, turned=True),
    "turned_nonzero": functools.partial(_mixed, turned=True, zeros=False),
    "turned_moderate": functools.partial(_mixed, turned=True, large=False),
    "turned_moderate_nonzero": functools.partial(_mixed, turned=True, zeros=False, large=False),
    "negative": _negative,
    "far_negative": functools.partial(_negative, far=True),
    "positive": _positive,
    "over_minus_one": _over_minus_one,
    "within_one": _within_one,
    "wide": _wide,
    "integers": _integers,
    "edges": _edges,
}
