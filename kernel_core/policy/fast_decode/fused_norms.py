"""Root mean square norms as one kernel each rather than six.

In a step of decoding with one token a row it is the number of kernels that takes time.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F

from kernel_core.policy.fast_decode.patched_modules import lent


class FusedNorms:
    """Fused norms of a model."""

    def __init__(self, model: Any) -> None:
        self._forwards = [(module, _Fused(module, eps)) for module, eps in fusible_norms(model)]

    def fused(self) -> AbstractContextManager[None]:
        """Run the model with these norms fused."""
        return lent(self._forwards)


def fusible_norms(model: Any) -> list[tuple[Any, float]]:
    """Return the model's plain RMS norms with their epsilon.

    Each is tested, since some models add 1 to the weight.
    """
    norms = []
    for module in model.modules():
        weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
        if not type(module).__name__.endswith("RMSNorm") or weight is None or eps is None:
            continue
        generator = torch.Generator().manual_seed(len(weight))
        hidden = torch.randn(4, len(weight), generator=generator).to(weight)
        fused = F.rms_norm(hidden, weight.shape, weight, eps)
        rounding = 4 * torch.finfo(weight.dtype).eps
        if torch.allclose(module(hidden), fused, rtol=rounding, atol=rounding):
            norms.append((module, eps))
    return norms


class _Fused:
    """Stands for a norm's own computation where its weight and its input are of one type."""

    def __init__(self, module: Any, eps: float) -> None:
        self._module, self._eps = module, eps
        self._forward = module.forward

    def __call__(self, hidden: torch.Tensor) -> Any:
        """See `torch.nn.functional.rms_norm`."""
        weight = self._module.weight
        if weight.dtype != hidden.dtype:
            return self._forward(hidden)
        return F.rms_norm(hidden, weight.shape, weight, self._eps)
