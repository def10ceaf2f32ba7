"""Passes over the rows of an update: packed into one sequence where the model allows it, padded otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
import torch.nn.functional as F

from kernel_core.learn.answer_loss import floored, has_plain_head, packed_loss
from kernel_core.learn.batch import TokenRow, collate, plan_batches
from kernel_core.learn.chunked_logits import by_token
from kernel_core.learn.decoder_layers import computed_again
from kernel_core.learn.distributed.data_parallel import ALONE, Plan, Share
from kernel_core.learn.packing import can_pack, pack, packed_attention, plan_packs
from kernel_core.learn.update import computing_in
from kernel_core.policy.torch_policy import TorchPolicy

SORTING_BATCHES = 50
"""Padded rows are sorted by length within about so many batches: little padding, and a shuffled order."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward passes over rows, each of at most `minibatch_tokens` tokens."""

    policy: TorchPolicy
    minibatch_tokens: int
    packed: bool
    floor: float = 0.0
    """Nats up to which a token's loss has no gradient."""

    @classmethod
    def of(cls, policy: TorchPolicy, minibatch_tokens: int, floor: float) -> Passes:
        """Packed ones where the model reads them as it reads rows alone, and its head is one product."""
        packed = has_plain_head(policy.model) and can_pack(policy.model)
        return cls(policy, minibatch_tokens, packed, floor)

    def prepared(self) -> AbstractContextManager[None]:
        """Prepare the model for these passes; backward passes belong inside the block too."""
        return packed_attention(self.policy.model) if self.packed else nullcontext()

    def losses(self, rows: Sequence[TokenRow], share: Share = ALONE) -> Iterator[tuple[torch.Tensor, int]]:
        """Yield for each pass the summed cross-entropy of answer tokens in nats, and the number of tokens
        read.

        With a `share`, of this process's rows; what it reads only to keep up with others costs 0 nats.
        """
        lengths = [len(row) for row in rows]
        for members, counts in share.of(lengths, self.minibatch_tokens, _planned(self.packed)):
            loss, num_read = self._loss([rows[index] for index in members])
            yield loss * counts, num_read

    def _loss(self, rows: Sequence[TokenRow]) -> tuple[torch.Tensor, int]:
        policy = self.policy
        with (
            computing_in(policy, policy.config.dtype == "bfloat16"),
            computed_again(policy.model, policy.config.gradient_checkpointing),
        ):
            if self.packed:
                packed = pack(rows, policy.device)
                return packed_loss(policy.model, packed, self.floor), packed.num_tokens
            batch = collate(rows, policy.tokenizer.pad_token_id or 0, policy.device)
            (losses_B_C,) = by_token(policy.model, batch, _cross_entropy)
            return (floored(losses_B_C, self.floor) * batch.mask_B_C).sum(), batch.ids_B_T.numel()


def shuffled_batches(lengths: Sequence[int], budget: int, seed: int, *, packed: bool) -> Iterator[list[int]]:
    """Indices of the rows of each update, without end: every row once an epoch."""
    sizes = np.array(lengths)
    window = len(sizes) if packed else max(1, int(SORTING_BATCHES * budget / sizes.mean()))
    for epoch in count():
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(sizes))
        for start in range(0, len(order), window):
            part = order[start : start + window]
            plan = _planned(packed)(sizes[part].tolist(), budget)
            for index in rng.permutation(len(plan)):
                yield part[plan[index]].tolist()


def _planned(packed: bool) -> Plan:
    return plan_packs if packed else plan_batches


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor]:
    losses = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="none")
    return (losses.view(targets.shape),)
