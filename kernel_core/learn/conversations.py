"""Conversations of a step and of a probe, with their seeds and judge inputs."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from kernel_core.config import RewardWeights, TrainConfig
from kernel_core.dialogue.rollout import Draw, Rollouts, roll_out_together, seed_of
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.sampled_gym import SampledGym
from kernel_core.policy.sampler import Sampler
from kernel_core.progress import Progress
from kernel_core.records import Problem
from kernel_core.retrieval.protocol import Retriever


def needs_speed(config: TrainConfig, weights: RewardWeights) -> bool:
    """Return True if anything in a step depends on a kernel's speed: its reward or a threshold."""
    return weights.speed != 0.0 or config.rollout.stop_at_speedup is not None


@dataclass(frozen=True)
class Conversations:
    """Sampler and judge of one run."""

    config: TrainConfig
    sampler: Sampler
    gym: Gym
    retriever: Retriever | None
    kind: SpeedKind

    @functools.cached_property
    def _sampled_gym(self) -> SampledGym | None:
        """Return the judge that judges a share in full of the answers that need no time."""
        share = self.config.judged_in_full
        return SampledGym(self.gym, share) if share < 1 else None

    def is_timed(self, weights: RewardWeights) -> bool:
        """Return True if a stage's kernels have a speed. Fast judgements give no predictions."""
        is_predicted = self.kind == "predicted" and self._sampled_gym is None
        return is_predicted or needs_speed(self.config, weights)

    def practice(self, problems: list[Problem], step: int, again: int, *, timing: bool) -> Draw:
        """Return a group for each problem of a step; `again` counts the redraws of its problems.

        The judge's inputs for a problem are the same in every step, so that a known kernel is not judged
        again.
        """
        return Draw(
            problems,
            self.config.rollout,
            self.config.group_size,
            seed=seed_of(self.config.seed, "rollout", step, *[again] * (again > 0)),
            judge_seed=seed_of(self.config.seed, "judge"),
            timing=timing,
        )

    def probing(self, problems: list[Problem], step: int) -> Draw:
        """Return one answer to each problem, after a step. Judge inputs are the same at every probe."""
        return Draw(
            problems,
            self.config.rollout.model_copy(update={"turns": 1}),
            group_size=1,
            seed=seed_of(self.config.seed, "probe", step),
            judge_seed=seed_of("probe"),
        )

    def hold(self, draws: list[Draw], progress: Progress) -> list[Rollouts]:
        """Sample and judge the draws together.

        Problems that the gym cannot work on are left out and counted; `GymUnavailable` when those are all of
        a draw.
        """
        held = roll_out_together(
            self.sampler,
            self._sampled_gym or self.gym,
            draws,
            self.retriever,
            leave_out_faults=True,
            one_by_one=self.config.sampler.is_server,
            progress=progress,
        )
        if self.config.sampler.is_server:
            self.sampler.release()  # the update may need the server's GPU next
        if self._sampled_gym is not None:
            held[0] = replace(held[0], compared=self._sampled_gym.take_compared())
        return held
