"""Settings of a comparison of training methods."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator

from kernel_core.config.base import Config
from kernel_core.config.evaluate import EvaluateConfig, asked
from kernel_core.config.train import TrainConfig

Method = Literal["rl", "expert_iteration", "frozen", "rl_shuffled"]


class Arm(NamedTuple):
    """One method with one seed."""

    method: str
    seed: int

    @property
    def name(self) -> str:
        """Return `METHOD-SEED`."""
        return f"{self.method}-{self.seed}"

    @property
    def learns(self) -> bool:
        """Return False for the method that leaves the policy as it is: it is evaluated without a training."""
        return self.method != "frozen"


class CompareConfig(Config):
    """Training methods with several seeds from the same policy, each measured on the same problems."""

    FORM: ClassVar[tuple[str, ...]] = ("methods", "seeds", "train", "evaluate")
    methods: tuple[Method, ...] = Field(
        ("frozen", "expert_iteration", "rl_shuffled", "rl"),
        min_length=1,
        description="Methods of `train.method`; the first is the one that others are compared with.",
    )
    seeds: tuple[int, ...] = Field(
        (0, 1, 2), min_length=1, description="Seeds of each method: of its training and of its answers."
    )
    train: TrainConfig = Field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = EvaluateConfig()

    @field_validator("methods", "seeds")
    @classmethod
    def _are_different(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) < len(values):
            raise ValueError(f"an arm is there once; {list(values)} repeats one")
        return values

    @field_validator("seeds")
    @classmethod
    def _name_runs(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if min(seeds) < 0:
            raise ValueError(f"seeds are part of names of runs: 0 or more; got {min(seeds)}")
        return seeds

    @property
    def arms(self) -> list[Arm]:
        """Return every method with every seed."""
        return [Arm(method, seed) for method in self.methods for seed in self.seeds]

    def training(self, arm: Arm, weights: str | None) -> TrainConfig:
        """Return the training of an arm, from the weights in a folder, or else from the policy itself."""
        policy = self.train.policy
        if weights is not None:
            policy = policy.model_copy(update={"model": weights, "revision": None})
        changes = {"method": arm.method, "seed": arm.seed, "policy": policy}
        return self.train.model_copy(update=changes)

    def evaluation(self, arm: Arm, training: TrainConfig, run: str) -> EvaluateConfig:
        """Return the evaluation of the policy that an arm's run has trained; its seed draws the answers."""
        stage = self.evaluate.model_copy(update={"seed": self.evaluate.seed + arm.seed})
        return asked(stage, training.policy, run if arm.learns else None)
