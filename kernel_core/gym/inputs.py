"""Families of inputs: what a problem draws itself, and what its own draws would not show.

All 250 of KernelBench's problems draw from [0, 1): there a sign, a clamp or a whole operator can be left
out unnoticed. The other families keep a problem's shapes and types and redraw its floating-point tensors.
Integers and booleans stay the problem's own draws, because they index and select.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

Draw = Literal["own", "normal", "wide", "integers", "edges"]
DRAWS: tuple[Draw, ...] = ("own", "normal", "wide", "integers", "edges")

_WIDE_EXPONENTS = 8.0
_EDGE_SHARE = 0.1
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0**-14, -(2.0**-14), 100.0, -100.0)


def redraw(value: Any, draw: Draw) -> Any:
    """`value` with its floating-point tensors from another family, under torch's global generator."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and draw != "own":
        return _FAMILIES[draw](value.shape).to(value.dtype)
    if isinstance(value, list | tuple):
        return type(value)(redraw(item, draw) for item in value)
    return value


def _normal(shape: torch.Size) -> torch.Tensor:
    """Around zero, with both signs."""
    return torch.randn(shape)


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
    "wide": _wide,
    "integers": _integers,
    "edges": _edges,
}
