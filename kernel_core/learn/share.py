"""One process's part of an update that several processes make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Share:
    """Which of `size` processes this is; alone by default."""

    rank: int = 0
    size: int = 1

    def of(self, plan: Sequence[list[int]]) -> list[tuple[list[int], bool]]:
        """This process's batches, and whether each counts.

        Every process gets as many, because weights are gathered by all of them together: one that is short
        of a batch reads the first again, which then counts nothing. Batches come longest first, so dealing
        them out in turn gives everyone about as many tokens.
        """
        mine = [(members, True) for members in plan[self.rank :: self.size]]
        most = -(-len(plan) // self.size)
        return mine + [(members, False) for members in plan[:1]] * (most - len(mine))

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
