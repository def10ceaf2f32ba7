"""Modules that users bring, small: a gated block with norms, and one of convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

BATCH, LENGTH, WIDTH, HIDDEN = 2, 12, 32, 96


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Two layers of norm and gated projection, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RMSNorm(WIDTH) for _ in range(2))
        self.mixers = nn.ModuleList(SwiGLU(WIDTH, HIDDEN) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + mixer(norm(x))
        return x


class ConvBlock(nn.Module):
    """A depthwise convolution, a norm over channels, and a pointwise product, added to the input."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.pointwise = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * F.gelu(self.pointwise(y))).permute(0, 3, 1, 2)


def block() -> tuple[nn.Module, torch.Tensor]:
    """Return the target of two gated layers."""
    return Block(), torch.randn(BATCH, LENGTH, WIDTH)


def conv_block() -> tuple[nn.Module, torch.Tensor]:
    """Return the target of convolutions."""
    return ConvBlock(), torch.randn(BATCH, WIDTH, 8, 8)


def norm() -> tuple[nn.Module, torch.Tensor]:
    """Return the smallest target: one norm."""
    return RMSNorm(WIDTH), torch.randn(BATCH, LENGTH, WIDTH)
