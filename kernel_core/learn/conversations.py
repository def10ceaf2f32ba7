"""Conversations of a step and of a probe, with their seeds and judge inputs."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from kernel_core.config import RewardWeights, TrainConfig
from kernel_core.dialogue.rollout import Rollouts, roll_out, seed_of
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.sampled_gym import SampledGym
from kernel_core.learn.metrics import probe_of
from kernel_core.learn.phase_timer import Clock
from kernel_core.policy.sampler import Sampler
from kernel_core.records import Problem
from kernel_core.retrieval.protocol import Retriever
from kernel_core.reward.curriculum import Probe


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
        """Return the judge of practice, which judges a share in full."""
        share = self.config.judged_in_full
        return SampledGym(self.gym, share) if share < 1 else None

    def is_timed(self, weights: RewardWeights) -> bool:
        """Return True if a stage's kernels have a speed. Fast judgements give no predictions."""
        is_predicted = self.kind == "predicted" and self._sampled_gym is None
        return is_predicted or needs_speed(self.config, weights)

    def practise(
        self, problems: list[Problem], step: int, draw: int, clock: Clock, *, timing: bool
    ) -> Rollouts:
        """Sample and judge a group for each problem of a step; `draw` counts the redraws of its problems.

        The judge's inputs for a problem are the same in every step, so that a known kernel is not judged
        again.
        """
        rollouts = roll_out(
            self.sampler,
            self._sampled_gym or self.gym,
            problems,
            self.retriever,
            self.config.rollout,
            group_size=self.config.group_size,
            seed=seed_of(self.config.seed, "rollout", step, *[draw] * (draw > 0)),
            judge_seed=seed_of(self.config.seed, "judge"),
            timing=timing,
            leave_out_faults=True,
            one_by_one=self.config.sampler.is_server,
            progress=clock.phase(),
        )
        self._release_server()
        clock.finish("rollout")
        if self._sampled_gym is not None:
            rollouts = replace(rollouts, compared=self._sampled_gym.take_compared())
        return rollouts

    def probe(self, problems: list[Problem], step: int, clock: Clock) -> Probe:
        """Sample and judge one answer to each problem.

        The judge's inputs are the same at every probe. Problems that the gym cannot work on are left out and
        counted; `GymUnavailable` when that is all of them.
        """
        rollouts = roll_out(
            self.sampler,
            self.gym,
            problems,
            self.retriever,
            self.config.rollout.model_copy(update={"turns": 1}),
            group_size=1,
            seed=seed_of(self.config.seed, "probe", step),
            judge_seed=seed_of("probe"),
            leave_out_faults=True,
            one_by_one=self.config.sampler.is_server,
            progress=clock.phase("probe"),
        )
        self._release_server()
        clock.finish("probe")
        return probe_of(rollouts.groups, step, self.kind, rollouts.num_left_out)

    def _release_server(self) -> None:
        """Release the sampling server's GPU: the update may need it next."""
        if self.config.sampler.is_server:
            self.sampler.release()
