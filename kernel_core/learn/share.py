"""One process's part of an update that several processes make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from kernel_core.learn.batch import plan_batches

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """Which of `size` processes this is; alone by default."""

    rank: int = 0
    size: int = 1
    whole: bool = False
    """Whether weights stay gathered, and gradients unreduced, from the first batch of a pass to its last."""

    def of(self, lengths: Sequence[int], token_budget: int) -> list[tuple[list[int], bool]]:
        """This process's batches of rows, and whether each counts.

        Rows are dealt out by length, so that everyone has about as many tokens. Every process gets as many
        batches, because weights are gathered by all of them together: one that is short of a batch reads its
        shortest row again, which then counts nothing.
        """
        order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
        hands = [order[rank :: self.size] for rank in range(self.size)]
        plans = [plan_batches([lengths[i] for i in hand], token_budget) for hand in hands]
        mine = [[hands[self.rank][at] for at in batch] for batch in plans[self.rank]]
        most = max(map(len, plans))
        return [(batch, True) for batch in mine] + [(order[-1:], False)] * (most - len(mine))

    def prepare(self, model: Any, last: bool) -> None:
        """Say before a batch whether it is the last before the optimiser's step."""
        if self.whole and isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(last)
            model.set_reshard_after_backward(last)

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
