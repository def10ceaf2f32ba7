"""What learns: the policy's optimiser, the processes that update with it, and the weights a KL term holds.

Everything that changes is in checkpoints, through `optimiser`; the reference is a folder in the run's store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError
from kernel_core.learn.batch import Row
from kernel_core.learn.distributed.learner_group import Team
from kernel_core.learn.reference import Reference, hold
from kernel_core.learn.update import keep_master_weights, new_optimiser, set_rate, update
from kernel_core.learn.update_report import UpdateReport
from kernel_core.policy.device_memory import give_back
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.trainable import Trainable
from kernel_core.progress import Progress
from kernel_core.store import Store

REFERENCE = "reference"
"""Folder of the policy that a KL term holds on to: the one that RL began with."""


class Learning(Protocol):
    """What updates the policy of a run; `open_learner` picks it."""

    @property
    def optimiser(self) -> torch.optim.Optimizer | None:
        """What a checkpoint has to keep of it; None where the policy's server does."""
        ...

    def begin(self) -> None:
        """Before the first step."""
        ...

    def went_back(self) -> None:
        """Policy and optimiser are a checkpoint's now."""
        ...

    def update(self, rows: Sequence[Row], step: int, progress: Progress) -> UpdateReport:
        """One step's update; nothing where the method learns nothing."""
        ...

    def gather(self) -> None:
        """Have all of a checkpoint's state in `optimiser`."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


def open_learner(config: TrainConfig, policy: Trainable, store: Store) -> Learning:
    """The learner of this kind of policy; `store` is the run's."""
    if isinstance(policy, TorchPolicy):
        return Learner(config, policy, store)
    from kernel_core.learn.remote_learner import RemoteLearner
    from kernel_core.policy.tinker_policy import TinkerPolicy

    if isinstance(policy, TinkerPolicy):
        return RemoteLearner(config, policy)
    raise ConfigError(
        f"policy.kind = {config.policy.kind} cannot be trained; set policy.kind=torch or tinker"
    )


class Learner:
    """Updates one policy, alone or with a team."""

    def __init__(self, config: TrainConfig, policy: TorchPolicy, store: Store) -> None:
        self._config, self._policy, self._store = config, policy, store
        keep_master_weights(policy)
        self.optimiser = new_optimiser(policy.model, config.lr)
        self._team = Team(config, policy, self.optimiser) if config.learners > 1 else None
        self._reference: Reference | None = None

    def begin(self) -> None:
        """Before the first step: keep the policy as it is for the KL term, if there is one."""
        if self._config.kl_coefficient:
            self._policy.save(self._store.child(REFERENCE))
            self._hold()

    def went_back(self) -> None:
        """Policy and optimiser are a checkpoint's now."""
        if self._team is not None:
            self._team.take()
        if self._config.kl_coefficient:
            self._hold()

    def update(self, rows: Sequence[Row], step: int, progress: Progress) -> UpdateReport:
        """One step's update; nothing where the method learns nothing."""
        if self._config.method == "frozen":
            return UpdateReport.nothing()
        lr = rate(self._config, step)
        if self._team is not None:
            report = self._team.update(rows, lr)
        else:
            set_rate(self.optimiser, lr)
            report = update(self._policy, self.optimiser, rows, self._config, self._reference, progress)
        give_back(self._policy.device)  # a judge on the same GPU is next
        return report

    def gather(self) -> None:
        """Have all of a checkpoint's state in `optimiser`."""
        if self._team is not None:
            self._team.give_moments()

    def close(self) -> None:
        """End the other learners."""
        if self._team is not None:
            self._team.close()

    def _hold(self) -> None:
        folder = self._store.child(REFERENCE)
        if self._team is not None:
            self._team.hold(folder.root)
        elif self._reference is None:
            self._reference = hold(folder, self._policy)


def rate(config: TrainConfig, step: int) -> float:
    """The learning rate of a step, counted from 1: linear up to `lr` over `warmup` steps."""
    return config.lr * min(1.0, step / config.warmup) if config.warmup else config.lr
