"""Calls of an answer that stay torch's: products and convolutions, for which libraries have kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

CONVOLUTIONS = frozenset(f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3))
"""Convolutions by torch's names: cuDNN's kernels are the fastest for most sizes."""
WEIGHTED = CONVOLUTIONS | {"linear"}
"""Convolutions and products with a weight: layers of a network around its own steps."""
ATTENTION = "scaled_dot_product_attention"
MATRIX_PRODUCTS = frozenset(
    {"linear", "bilinear", "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "einsum"}
)
PRODUCTS = CONVOLUTIONS | MATRIX_PRODUCTS | {ATTENTION}
"""Convolutions and matrix products by torch's names."""
_LEAST_SIDE = 16
"""Rows and columns from which a product fills the least tile of a tensor core."""


@dataclass(frozen=True)
class LibraryCalls:
    """Functions by torch's names whose calls stay torch's."""

    functions: frozenset[str] = frozenset()
    small: frozenset[str] = frozenset()
    """Functions of which only those products do that fill no tile, or that are not of float32."""

    def has(self, function: str, args: Any, result: Any) -> bool:
        """Return True if a call of a function with these arguments and this result stays torch's."""
        return function in self.functions or (function in self.small and _is_small(args, result))

    def of_weights(self) -> LibraryCalls:
        """Return the same without products of two inputs."""
        return LibraryCalls(self.functions & WEIGHTED, self.small & WEIGHTED)


NO_CALLS = LibraryCalls()


def _is_small(args: Any, result: torch.Tensor) -> bool:
    """True for a product that is not of float32, or of which each of the batch has few rows or columns."""
    operands = [given for given in args if isinstance(given, torch.Tensor)]
    is_batched = any(operand.dim() > 2 for operand in operands[1:])
    rows = result.shape[-2:-1] if is_batched else result.shape[:-1]
    sides = (math.prod(rows), *result.shape[-1:])
    return result.dtype != torch.float32 or len(sides) < 2 or min(sides) < _LEAST_SIDE
