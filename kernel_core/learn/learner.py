"""Learner in the trainer's process: the policy's optimiser, and the reference weights of a KL term.

Everything that changes is in checkpoints, through `optimiser`; the reference is a folder in the run's store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.checkpoint import Files
from kernel_core.learn.reference import Reference, hold
from kernel_core.learn.update import keep_master_weights, new_optimiser, set_rate, update
from kernel_core.learn.update_report import UpdateReport
from kernel_core.policy.device_memory import release_cached_memory
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.trainable import Trainable
from kernel_core.progress import Progress
from kernel_core.store import Store

REFERENCE = "reference"
"""Folder of the policy that a KL term holds on to: the one that RL began with."""


class Learning:
    """Updates the policy of a run; `open_learner` picks it.

    Methods without a body suit one that keeps nothing beside `optimiser`.
    """

    optimiser: torch.optim.Optimizer | None = None
    """For checkpoints; None where the policy's server or other processes keep it."""

    def begin(self) -> None:
        """Prepare the first step."""

    def on_restore(self, folder: Store) -> None:
        """Policy and optimiser are those of a checkpoint, in this folder, now."""

    def update(self, rows: Sequence[TokenRow], step: int, progress: Progress) -> UpdateReport:
        """Make one step's update; do nothing where the method learns nothing."""
        raise NotImplementedError

    def save(self, folder: Store) -> Callable[[], Files] | None:
        """Take what a checkpoint needs beside `optimiser`; the call that comes back gives it as files."""
        return None

    def close(self) -> None:
        """Release started processes."""


def open_learner(config: TrainConfig, policy: Trainable, store: Store) -> Learning:
    """Open the learner of this kind of policy; `store` is the run's."""
    if isinstance(policy, TorchPolicy) and config.has_group:
        from kernel_core.learn.distributed.learner_group import LearnerGroup

        return LearnerGroup(config, policy, store)
    if isinstance(policy, TorchPolicy):
        return Learner(config, policy, store)
    from kernel_core.learn.remote_learner import RemoteLearner
    from kernel_core.policy.tinker_policy import TinkerPolicy

    if isinstance(policy, TinkerPolicy):
        return RemoteLearner(config, policy)
    raise ConfigError(
        f"policy.kind = {config.policy.kind} cannot be trained; set policy.kind=torch or tinker"
    )


class Learner(Learning):
    """Updates one policy in this process."""

    def __init__(self, config: TrainConfig, policy: TorchPolicy, store: Store) -> None:
        self._config, self._policy, self._store = config, policy, store
        keep_master_weights(policy)
        self.optimiser: torch.optim.Optimizer = new_optimiser(policy.model, config.lr)
        self._reference: Reference | None = None

    def begin(self) -> None:
        """Prepare the first step: keep the policy as it is for the KL term, if there is one."""
        if self._config.kl_coefficient:
            self._policy.save(self._store.child(REFERENCE))
            self._hold()

    def on_restore(self, folder: Store) -> None:
        """Policy and optimiser are a checkpoint's now."""
        if self._config.kl_coefficient:
            self._hold()

    def update(self, rows: Sequence[TokenRow], step: int, progress: Progress) -> UpdateReport:
        """Make one step's update; do nothing where the method learns nothing."""
        if self._config.method == "frozen":
            return UpdateReport.nothing()
        set_rate(self.optimiser, rate(self._config, step))
        report = update(self._policy, self.optimiser, rows, self._config, self._reference, progress)
        release_cached_memory(self._policy.device)  # a judge on the same GPU is next
        return report

    def _hold(self) -> None:
        if self._reference is None:
            self._reference = hold(self._store.child(REFERENCE), self._policy)


def rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate of a step, counted from 1: linear up to `lr` over `warmup` steps."""
    return config.lr * min(1.0, step / config.warmup) if config.warmup else config.lr
