"""What a cold start's updates are made by: this process, or the server that holds the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, Protocol

import numpy as np
import torch

from kernel_core.config import ColdStartConfig
from kernel_core.learn.batch import Row
from kernel_core.learn.cold_start.passes import Passes, shuffled_batches
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

MAX_GRAD_NORM = 1.0


class Updated(NamedTuple):
    """One update."""

    loss: torch.Tensor | float
    """Nats a token, before the update."""
    grad_norm: torch.Tensor | float | None
    """None where a server does not say."""
    num_read: int
    """Tokens, padding included."""


class Updater(Protocol):
    """Makes the updates of a cold start, and measures its loss."""

    @property
    def optimiser(self) -> torch.optim.Optimizer | None:
        """What a checkpoint has to keep; None where a server does."""
        ...

    def training(self) -> AbstractContextManager[None]:
        """The model is in training as long as the block lasts."""
        ...

    def batches(self, lengths: Sequence[int], budget: int, seed: int) -> Iterator[list[int]]:
        """Indices of the rows of each update, without end."""
        ...

    def update(self, rows: Sequence[Row], lr: float) -> Updated:
        """One optimiser step."""
        ...

    def loss(self, rows: Sequence[Row]) -> float:
        """Nats a token of the answers."""
        ...


def open_updater(policy: Trainable, config: ColdStartConfig, minibatch_tokens: int) -> Updater:
    """The updater of this kind of policy."""
    if isinstance(policy, TinkerPolicy):
        return RemoteUpdater(policy, config)
    assert isinstance(policy, TorchPolicy)
    return TorchUpdater(policy, config, minibatch_tokens)


class TorchUpdater:
    """AdamW on the weights in this process."""

    def __init__(self, policy: TorchPolicy, config: ColdStartConfig, minibatch_tokens: int) -> None:
        self._policy = policy
        self._passes = Passes.of(policy, minibatch_tokens)
        self.optimiser = new_optimiser(policy.model, config.lr, config.weight_decay)

    @contextmanager
    def training(self) -> Iterator[None]:
        """See `Updater`; backward passes belong inside the block too."""
        self._policy.model.train()
        with self._passes.prepared():
            yield
        self._policy.model.eval()

    def batches(self, lengths: Sequence[int], budget: int, seed: int) -> Iterator[list[int]]:
        """See `Updater`."""
        return self._passes.batches(lengths, budget, seed)

    def update(self, rows: Sequence[Row], lr: float) -> Updated:
        """See `Updater`; on a GPU no number is waited for."""
        set_rate(self.optimiser, lr)
        num_answer_tokens = sum(len(row.answer_ids) for row in rows)
        total, num_read = torch.zeros((), device=self._policy.device), 0
        for summed, read in self._passes.losses(rows):
            loss = summed / num_answer_tokens
            torch.autograd.backward(loss)
            total += loss.detach()
            num_read += read
        if self._policy.device.type == "cuda":
            norm: torch.Tensor | float = clip_and_step_unseen(
                self._policy.model, self.optimiser, MAX_GRAD_NORM
            )
        else:
            norm, _ = clip_and_step(self._policy.model, self.optimiser, MAX_GRAD_NORM)
        return Updated(total, norm, num_read)

    def loss(self, rows: Sequence[Row]) -> float:
        """See `Updater`; without dropout."""
        total = 0.0
        with torch.no_grad(), self._policy.evaluating(), self._passes.prepared():
            for loss, _ in self._passes.losses(rows):
                total += float(loss)
        return total / sum(len(row.answer_ids) for row in rows)


class RemoteUpdater:
    """Adam on a server, at the gradient of the mean over all answer tokens of an update.

    The server reads the answers first, as in RL. With a ratio of 1 the policy-gradient loss has the gradient
    of the cross entropy, and servers reduce that one loss in ways that are known here.
    """

    optimiser = None

    def __init__(self, policy: TinkerPolicy, config: ColdStartConfig) -> None:
        self._model = policy.model
        self._weight_decay = config.weight_decay

    def training(self) -> AbstractContextManager[None]:
        """Nothing to prepare."""
        return nullcontext()

    def batches(self, lengths: Sequence[int], budget: int, seed: int) -> Iterator[list[int]]:
        """See `Updater`."""
        return shuffled_batches(lengths, budget, seed, packed=True)

    def update(self, rows: Sequence[Row], lr: float) -> Updated:
        """See `Updater`."""
        old = self._model.logprobs([Answered(row.prompt_ids, row.answer_ids) for row in rows])
        count = sum(len(row.answer_ids) for row in rows)
        weighted = [
            Weighted(row.prompt_ids, row.answer_ids, read, np.full(len(read), 1.0 / count, np.float32))
            for row, read in zip(rows, old, strict=True)
        ]
        learned = self._model.learn(weighted, lr, MAX_GRAD_NORM, self._weight_decay)
        loss = -float(np.concatenate(old).sum()) / count
        return Updated(loss, learned.grad_norm, sum(map(len, rows)))

    def loss(self, rows: Sequence[Row]) -> float:
        """See `Updater`."""
        read = self._model.logprobs([Answered(row.prompt_ids, row.answer_ids) for row in rows])
        return -float(np.concatenate(read).mean())
