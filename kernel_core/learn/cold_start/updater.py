"""Updaters of a cold start: this process, several learners, or a server with the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
import torch

from kernel_core.config import ColdStartConfig, TrainConfig
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.checkpoint import Files
from kernel_core.learn.cold_start.passes import Passes, shuffled_batches
from kernel_core.learn.decoder_layers import compiled
from kernel_core.learn.distributed.data_parallel import ALONE, Share
from kernel_core.learn.update import (
    clip_and_step,
    clip_and_step_unseen,
    new_optimiser,
    set_rate,
)
from kernel_core.policy.remote_model import Answered, Weighted
from kernel_core.policy.tinker_policy import TinkerPolicy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.trainable import Trainable
from kernel_core.store import Store

MAX_GRAD_NORM = 1.0
_LEAST_COMPILED_TOKENS = 5_000_000
"""On an H200 compiled layers of 0.5 B read 116 thousand tokens a second in place of 77, after 22 s."""


class Updated(NamedTuple):
    """Result of one update."""

    loss: torch.Tensor | float
    """Nats a token, before the update."""
    grad_norm: torch.Tensor | float | None
    """None where a server does not report it."""
    num_read: int
    """Tokens, padding included."""


class Updater:
    """Makes the updates of a cold start, and measures its loss. See also `Learning`.

    Methods without a body suit a policy, here or on a server, that has all of its weights.
    """

    optimiser: torch.optim.Optimizer | None = None
    """For checkpoints; None where a server or other processes keep it."""
    packed = True
    """Rows of an update are packed, so they need not be of similar lengths."""

    def training(self) -> AbstractContextManager[None]:
        """Put the model into training mode inside the block."""
        return nullcontext()

    def batches(self, lengths: Sequence[int], budget: int, seed: int) -> Iterator[list[int]]:
        """Indices of the rows of each update, without end: every row once an epoch."""
        return shuffled_batches(lengths, budget, seed, packed=self.packed)

    def update(self, rows: Sequence[TokenRow], lr: float) -> Updated:
        """Make one optimiser step."""
        raise NotImplementedError

    def loss(self, rows: Sequence[TokenRow]) -> float:
        """Nats a token of the answers."""
        raise NotImplementedError

    def on_restore(self, folder: Store) -> None:
        """Policy and optimiser are those of a checkpoint, in this folder, now."""

    def fill(self) -> None:
        """Copy the present weights, which other processes may hold, into the policy."""

    def save(self, folder: Store) -> Callable[[], Files] | None:
        """See `Learning`."""
        return None

    def close(self) -> None:
        """Release started processes."""


def open_updater(
    policy: Trainable,
    config: ColdStartConfig,
    minibatch_tokens: int,
    store: Store,
    training: TrainConfig | None = None,
) -> Updater:
    """Open the updater of this kind of policy; `store` is the cold start's, `training` names learners."""
    if isinstance(policy, TinkerPolicy):
        return RemoteUpdater(policy, config)
    assert isinstance(policy, TorchPolicy)
    passes = Passes.of(policy, minibatch_tokens, config.loss_floor)
    if training is not None and training.has_group and config.shared:
        return GroupUpdater(passes, config, store, training)
    optimiser = new_optimiser(policy.model, config.lr, config.weight_decay)
    is_whole = policy.device.type == "cuda" and not hasattr(policy.model, "peft_config")
    are_many = config.steps * config.batch_tokens >= _LEAST_COMPILED_TOKENS
    return TorchUpdater(passes, optimiser, compiles=passes.packed and is_whole and are_many)


class TorchUpdater(Updater):
    """AdamW on the weights in this process, which has a share of them in a group of learners."""

    def __init__(
        self,
        passes: Passes,
        optimiser: torch.optim.Optimizer,
        share: Share = ALONE,
        *,
        compiles: bool = False,
    ) -> None:
        self._passes, self._policy, self._share = passes, passes.policy, share
        self.packed = passes.packed
        self.optimiser: torch.optim.Optimizer = optimiser
        self._compiles = compiles

    @contextmanager
    def training(self) -> Iterator[None]:
        """See `Updater`; backward passes belong inside the block too."""
        self._policy.model.train()
        with self._passes.prepared(), compiled(self._policy.model, self._compiles):
            yield
        self._policy.model.eval()

    def update(self, rows: Sequence[TokenRow], lr: float) -> Updated:
        """See `Updater`; loss and tokens are this share's. Alone on a GPU, no number is waited for."""
        set_rate(self.optimiser, lr)
        num_answer_tokens = sum(len(row.answer_ids) for row in rows)
        total, num_read = torch.zeros((), device=self._policy.device), 0
        for summed, read in self._passes.losses(rows, self._share):
            loss = summed / num_answer_tokens
            torch.autograd.backward(loss * self._share.size)  # gradients are averaged, wanted is their sum
            total += loss.detach()
            num_read += read
        if self.optimiser.defaults["fused"]:
            norm: torch.Tensor | float = clip_and_step_unseen(
                self._policy.model, self.optimiser, MAX_GRAD_NORM
            )
        else:
            norm, _ = clip_and_step(self._policy.model, self.optimiser, MAX_GRAD_NORM)
        return Updated(total, norm, num_read)

    def loss(self, rows: Sequence[TokenRow]) -> float:
        """See `Updater`; without dropout, and this share's part of the mean."""
        total = 0.0
        with torch.no_grad(), self._policy.evaluating(), self._passes.prepared():
            for loss, _ in self._passes.losses(rows, self._share):
                total += float(loss)
        return total / sum(len(row.answer_ids) for row in rows)


class GroupUpdater(Updater):
    """AdamW on the shards of several learners. The policy in this process is a copy of them."""

    def __init__(self, passes: Passes, config: ColdStartConfig, store: Store, training: TrainConfig) -> None:
        from kernel_core.learn.distributed.learner_group import LearnerGroup

        changes = {"minibatch_tokens": passes.minibatch_tokens, "kl_coefficient": 0.0}
        settings = training.model_copy(update=changes)
        self.packed = passes.packed
        self._group = LearnerGroup(settings, passes.policy, store, config.weight_decay)
        self.on_restore, self.fill = self._group.on_restore, self._group.fill  # type: ignore[method-assign]
        self.save, self.close = self._group.save, self._group.close  # type: ignore[method-assign]

    def update(self, rows: Sequence[TokenRow], lr: float) -> Updated:
        """See `Updater`; the policy does not have the new weights before `fill`."""
        return Updated(*self._group.teach(rows, lr, self.packed))

    def loss(self, rows: Sequence[TokenRow]) -> float:
        return self._group.loss(rows, self.packed)


class RemoteUpdater(Updater):
    """Adam on a server, at the gradient of the mean over all answer tokens of an update.

    The server reads the answers first, as in RL. With a ratio of 1 the policy-gradient loss has the gradient
    of the cross entropy, and servers reduce that one loss in ways that are known here.
    """

    def __init__(self, policy: TinkerPolicy, config: ColdStartConfig) -> None:
        self._model = policy.model
        self._weight_decay, self._floor = config.weight_decay, config.loss_floor

    def update(self, rows: Sequence[TokenRow], lr: float) -> Updated:
        old = self._model.logprobs([Answered(row.prompt_ids, row.answer_ids) for row in rows])
        count = sum(len(row.answer_ids) for row in rows)
        weighted = [
            Weighted(
                row.prompt_ids,
                row.answer_ids,
                read,
                np.where(-read > self._floor, np.float32(1.0 / count), np.float32(0.0)),
            )
            for row, read in zip(rows, old, strict=True)
        ]
        learned = self._model.learn(weighted, lr, MAX_GRAD_NORM, self._weight_decay)
        loss = -float(np.concatenate(old).sum()) / count
        return Updated(loss, learned.grad_norm, sum(map(len, rows)))

    def loss(self, rows: Sequence[TokenRow]) -> float:
        read = self._model.logprobs([Answered(row.prompt_ids, row.answer_ids) for row in rows])
        return -float(np.concatenate(read).mean())
