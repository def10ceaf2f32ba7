"""One process's part of an update that several processes make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from kernel_core.learn.batch import plan_batches

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """Which of `size` processes this is; alone by default."""

    rank: int = 0
    size: int = 1
    has_copy: bool = False
    """Whether each process has all weights, gradients and moments, rather than a shard of them."""

    def of(self, lengths: Sequence[int], token_budget: int) -> list[tuple[list[int], bool]]:
        """This process's batches of rows, and whether each counts.

        Rows are dealt out by length, so that everyone has about as many tokens. Every process gets as many
        batches, because shards are gathered by all of them together: one that is short of a batch reads its
        shortest row again, which then counts nothing.
        """
        order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
        hands = [order[rank :: self.size] for rank in range(self.size)]
        plans = [plan_batches([lengths[i] for i in hand], token_budget) for hand in hands]
        mine = [[hands[self.rank][at] for at in batch] for batch in plans[self.rank]]
        most = max(map(len, plans))
        return [(batch, True) for batch in mine] + [(order[-1:], False)] * (most - len(mine))

    def average_gradients(self, model: Any) -> None:
        """Where each process has a copy: the mean of all gradients in every one of them, in one go. Those of
        shards are averaged as they are made."""
        if not self.has_copy or self.size == 1:
            return
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(together)
        parts = (together / self.size).split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def gathered(self, mine: dict[int, T]) -> dict[int, T]:
        """What all processes found, by row."""
        if self.size == 1:
            return mine
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, mine)
        return {row: value for part in found for row, value in part.items()}

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums over all processes."""
        return self._reduced(values, "sum")

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest over all processes."""
        return self._reduced(values, "max")

    def _reduced(self, values: Sequence[float], how: str) -> list[float]:
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.SUM if how == "sum" else dist.ReduceOp.MAX)
        reduced: list[float] = tensor.tolist()
        return reduced


ALONE = Share()
