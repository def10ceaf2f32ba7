"""Rotary positions in three kernels for queries and three for keys rather than five and five.

With q turned by half its width, q·cos + rotate_half(q)·sin is q·cos + turned(q)·sin', where sin' is sin with
its first half negated; all layers of a step share cos and sin, so sin' is made once. In a step of decoding
with one token a row it is the number of kernels that takes time.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

_NAME = "apply_rotary_pos_emb"
Rotary = Callable[..., tuple[torch.Tensor, torch.Tensor]]


class FusedRotary:
    """Fused rotary positions of a model's attention."""

    def __init__(self, model: Any) -> None:
        self._modules = rotary_modules(model)
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None
        """The sines of this step's layers, as they come and with their signs."""

    @contextlib.contextmanager
    def fused(self) -> Iterator[None]:
        """Run the model with fused rotary positions."""
        usual = [getattr(module, _NAME) for module in self._modules]
        for module, function in zip(self._modules, usual, strict=True):
            setattr(module, _NAME, self._stand_in(function))
        try:
            yield
        finally:
            for module, function in zip(self._modules, usual, strict=True):
                setattr(module, _NAME, function)
            self._kept = None

    def _stand_in(self, usual: Rotary) -> Rotary:
        def rotate(
            q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
        ) -> tuple[torch.Tensor, torch.Tensor]:
            if cos.shape[-1] != q.shape[-1]:
                return usual(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
            kept = self._kept
            if kept is None or kept[0] is not sin:
                self._kept = kept = sin, signed(sin)
            cos, signed_sin = cos.unsqueeze(unsqueeze_dim), kept[1].unsqueeze(unsqueeze_dim)
            return rotated(q, cos, signed_sin), rotated(k, cos, signed_sin)

        return rotate


def rotary_modules(model: Any) -> list[Any]:
    """Return the transformers modules that define this model's attention with the usual rotary positions.

    Each is tested, since some rotate neighbours instead of halves.
    """
    homes = {
        type(module).__module__ for module in model.modules() if type(module).__name__.endswith("Attention")
    }
    modules = [sys.modules[home] for home in sorted(homes)]
    return [module for module in modules if hasattr(module, _NAME) and _is_usual(getattr(module, _NAME))]


def signed(sin: torch.Tensor) -> torch.Tensor:
    """Sines (…, D) with their first half negated."""
    low, high = sin.chunk(2, dim=-1)
    return torch.cat((-low, high), dim=-1)


def rotated(x: torch.Tensor, cos: torch.Tensor, signed_sin: torch.Tensor) -> torch.Tensor:
    """Positions laid into x (…, D)."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), signed_sin)


def _is_usual(function: Rotary) -> bool:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 3, 16, generator=generator) for heads in (4, 2))
    angle = torch.rand(2, 3, 8, generator=generator)
    cos, sin = (torch.cat((half, half), dim=-1) for half in (angle.cos(), angle.sin()))
    try:
        usual = function(q, k, cos, sin)
    except (TypeError, ValueError, RuntimeError):
        return False
    ours = (rotated(x, cos.unsqueeze(1), signed(sin).unsqueeze(1)) for x in (q, k))
    return all(
        expected.shape == actual.shape and torch.allclose(expected, actual, atol=1e-6)
        for expected, actual in zip(usual, ours, strict=True)
    )
