"""Signal of an update: the cosine between the gradients of a step's two halves.

The halves have different problems. With signal μ and noise of variance σ² in each, the cosine is about
|μ|² / (|μ|² + σ²): near 0 where an update is chance, as that of `method: rl_shuffled` is. More answers a step
raise it. A single step's value is off by some 0.05; the mean over many tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_core.learn.batch import TokenRow
from kernel_core.learn.distributed.data_parallel import number_of

_MOST_WEIGHTS = 200_000_000
"""Above it nothing is compared: a copy of the gradient would not be cheap."""


def halves_of(rows: Sequence[TokenRow]) -> tuple[list[int], list[int]]:
    """Split the rows into those of the first half of the conversations and the others; return their indices.

    Conversations of a problem follow one another, so at most one problem is in both. Without two
    conversations all are in the second.
    """
    numbers = sorted({row.conversation for row in rows})
    middle = numbers[len(numbers) // 2] if numbers else 0
    first = [place for place, row in enumerate(rows) if row.conversation < middle]
    return first, [place for place, row in enumerate(rows) if row.conversation >= middle]


def gradient_of(model: Any) -> list[torch.Tensor] | None:
    """Copy the gradient so far, parameter by parameter; None where there is none, or it is too large."""
    parts = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if not parts or sum(part.numel() for part in parts) > _MOST_WEIGHTS:
        return None
    return [part.detach().clone() for part in parts]


def agreement(first: Sequence[torch.Tensor] | None, model: Any) -> float | None:
    """Return the cosine, in [-1, 1], between the first half's gradient and the rest of it; None where
    the first is None or one of the two is 0."""
    if first is None:
        return None
    whole = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    sums: list[Any] = [0.0, 0.0, 0.0]  # on the device until the end: reading each would stop a GPU
    for a, both in zip(first, whole, strict=True):
        b = both.detach() - a
        products = ((x * y).sum(dtype=torch.float64) for x, y in ((a, b), (a, a), (b, b)))
        sums = [so_far + product for so_far, product in zip(sums, products, strict=True)]
    dot, first_square, second_square = map(number_of, sums)
    lengths: float = (first_square * second_square) ** 0.5
    return float(dot / lengths) if lengths > 0.0 else None
