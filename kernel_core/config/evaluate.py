"""Settings of evaluation and of best of N."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernel_core.config.corpus import ProblemsConfig
from kernel_core.config.rollout import RolloutConfig, RolloutStageConfig


class EvaluateConfig(RolloutStageConfig):
    """A policy on held-out problems."""

    problems: ProblemsConfig = ProblemsConfig(split="held_out", limit=24, seed=1000)
    samples_per_problem: int = Field(2, ge=1, description="Conversations a problem.")
    k: tuple[int, ...] = Field((1, 2), description="pass@k for these k.")
    checkpoint: str | None = Field(
        None, description="A run's name, `run@step`, `run@best`, or a folder; empty: the policy itself."
    )
    seed: int = Field(0, description="Seeds every draw of this stage.")


class BestOfNConfig(RolloutStageConfig):
    """The best kernel a policy can write for each problem."""

    problems: ProblemsConfig = ProblemsConfig(split="held_out", limit=6, seed=2000)
    mode: Literal["parallel", "sequential"] = Field("parallel", description="N samples at once, or T turns.")
    n: int = Field(8, ge=1, description="Samples, or turns.")
    checkpoint: str | None = Field(
        None, description="As in evaluate: a run's name, `run@step`, `run@best`, or a folder."
    )
    rollout: RolloutConfig = RolloutConfig(turns=1)
    seed: int = Field(0, description="Seeds every draw of this stage.")
