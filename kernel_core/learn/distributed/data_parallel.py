"""Share of one process in an update that several processes make together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from kernel_core.learn.batch import plan_batches
from kernel_core.learn.decoder_layers import decoder_layers

T = TypeVar("T")
Plan = Callable[[Sequence[int], int], list[list[int]]]
"""Batches of rows from their lengths and a budget of tokens, as indices."""
_SLACKS = (1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
"""Factors by which batches may exceed their mean, tried from the best to the worst."""


@dataclass(frozen=True, slots=True)
class Share:
    """Rank of this process among `size` processes; alone by default."""

    rank: int = 0
    size: int = 1

    def of(
        self, lengths: Sequence[int], token_budget: int, planned: Plan = plan_batches
    ) -> list[tuple[list[int], bool]]:
        """Plan this process's batches of rows, each with a flag whether it counts.

        All batches together are as many as everyone has an equal number of, and about equally large. Shards
        are gathered by all processes together. Where rows are few, a process without a batch reads the last
        row of the plan again, which then counts nothing.
        """
        if not lengths:
            return []
        plan = self._plan(lengths, token_budget, planned)
        again = plan[-1][-1:]
        places = range(0, len(plan), self.size)
        # Longer rows cost more a token: the longest batch of a round meets the shortest of the next.
        turns = [self.rank if number % 2 == 0 else self.size - 1 - self.rank for number in range(len(places))]
        mine = [plan[place + turn : place + turn + 1] for place, turn in zip(places, turns, strict=True)]
        return [(batch[0], True) if batch else (again, False) for batch in mine]

    def _plan(self, lengths: Sequence[int], token_budget: int, planned: Plan) -> list[list[int]]:
        """Plan the batches of all processes: as few rounds as possible, and as small as these allow."""
        plan = planned(lengths, token_budget)
        num_batches = -(-len(plan) // self.size) * self.size
        smallest = -(-sum(lengths) // num_batches)
        for slack in _SLACKS if self.size > 1 else ():
            smaller = planned(lengths, min(token_budget, int(slack * smallest)))
            if len(smaller) <= num_batches:
                return smaller
        return plan

    def gathered(self, mine: dict[int, T]) -> dict[int, T]:
        """Gather the results of all processes, by row."""
        if self.size == 1:
            return mine
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, mine)
        return {row: value for part in parts for row, value in part.items()}

    def total(self, values: Sequence[float]) -> list[float]:
        """Return the sums over all processes."""
        return self._reduced(values, "sum")

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the largest value over all processes."""
        return self._reduced(values, "max")

    def _reduced(self, values: Sequence[float], how: str) -> list[float]:
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.SUM if how == "sum" else dist.ReduceOp.MAX)
        reduced: list[float] = tensor.tolist()
        return reduced


ALONE = Share()


def shard(model: Any, compute_dtype: torch.dtype) -> None:
    """Shard each decoder layer, and the rest of the model, over all processes (FSDP2).

    Weights that train are float32 shards from then on; a layer is gathered in `compute_dtype` while it
    computes. The model may be on the CPU: one layer at a time is whole on the GPU.
    """
    precision = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    for module in [*decoder_layers(model), model]:
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.dtype != torch.float32:
                parameter.data = parameter.data.float()
        fully_shard(module, mp_policy=precision)


def number_of(value: Any) -> float:
    """Return a sum of tensors as a number; of shards, over all processes."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)


def reshard(model: Any) -> None:
    """Reshard every FSDP module, because a pass without gradients leaves some layers gathered."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
