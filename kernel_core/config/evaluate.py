"""Settings of evaluation and of best of N."""

from __future__ import annotations

import re
from typing import ClassVar, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from kernel_core.config.corpus import ProblemsConfig
from kernel_core.config.model_kind import completed
from kernel_core.config.policy import PolicyConfig
from kernel_core.config.rollout import RolloutConfig, RolloutStageConfig, suited

MOST_SAMPLES = 4096
"""Per problem: a larger number is a slip of the finger, and would fill the memory before the first answer."""

UNTAUGHT_PROBLEMS = 24
"""Problems of a group: an untaught model solves next to none, and its answers are as long as they may be."""


class EvaluateConfig(RolloutStageConfig):
    """A policy on held-out problems."""

    FORM: ClassVar[tuple[str, ...]] = ("checkpoint", "policy", "problems", "samples_per_problem")
    problems: ProblemsConfig = ProblemsConfig(split="held_out", limit=24, seed=1000)
    samples_per_problem: int = Field(2, ge=1, le=MOST_SAMPLES, description="Conversations per problem.")
    k: tuple[int, ...] = Field(
        (1, 2), description="Values of k for pass@k; default: 1 and `samples_per_problem`."
    )
    checkpoint: str | None = Field(
        None,
        description="Run name, `run@step`, `run@best` or a folder; `@base`: the model before its cold start; "
        "null: the policy itself.",
    )
    groups: dict[str, ProblemsConfig] = Field(
        default_factory=dict, description="Further groups of problems by name, each with its own scorecard."
    )
    answers: str | None = Field(
        None,
        description="Stored answers to judge in place of a policy's: a folder or a file (evaluation.md).",
    )
    seed: int = Field(0, description="Random seed.")

    @field_validator("groups")
    @classmethod
    def _are_held_out(cls, groups: dict[str, ProblemsConfig]) -> dict[str, ProblemsConfig]:
        if bad := [name for name in groups if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name)]:
            raise ValueError(f"the name of a group has small letters, digits and dashes; it is {bad[0]!r}")
        return {name: completed(group, {"split": "held_out"}) for name, group in groups.items()}

    def by_folder(self, folder: str) -> dict[str, Self]:
        """Return an evaluation for each group of problems, by the folder of its scorecard."""
        plain = self.model_copy(update={"groups": {}})
        others = {
            f"{folder}-{name}": plain.model_copy(update={"problems": problems})
            for name, problems in self.groups.items()
        }
        return {folder: plain, **others}

    @property
    def policy_on_gpu(self) -> bool:
        """Return True if a policy is asked and is on GPUs."""
        return self.answers is None and super().policy_on_gpu

    @property
    def of_untaught(self) -> Self:
        """Return the evaluation of a model before its cold start: one sample of each of few problems, and the
        prompt that says what an answer looks like."""
        rollout = self.rollout.model_copy(update={"template": "full"})
        groups = {name: group.at_most(UNTAUGHT_PROBLEMS) for name, group in self.groups.items()}
        return self.model_copy(
            update={
                "samples_per_problem": 1,
                "k": (1,),
                "rollout": rollout,
                "problems": self.problems.at_most(UNTAUGHT_PROBLEMS),
                "groups": groups,
            }
        )

    @model_validator(mode="after")
    def _k_follows_samples(self) -> Self:
        samples = self.samples_per_problem
        if "k" not in self.model_fields_set:
            object.__setattr__(self, "k", tuple(sorted({1, samples})))
        if max(self.k, default=1) > samples:
            raise ValueError(
                f"pass@k needs at least k samples; k = {list(self.k)}, samples_per_problem = {samples}: "
                f"raise samples_per_problem to {max(self.k)} or lower k"
            )
        return self


class BestOfNConfig(RolloutStageConfig):
    """The best kernel a policy can write for each problem."""

    FORM: ClassVar[tuple[str, ...]] = ("checkpoint", "policy", "problems", "n")
    problems: ProblemsConfig = ProblemsConfig(split="held_out", limit=6, seed=2000)
    mode: Literal["parallel", "sequential"] = Field(
        "parallel", description="`parallel`: n samples; `sequential`: n turns of one conversation."
    )
    n: int = Field(8, ge=1, le=MOST_SAMPLES, description="Samples or turns per problem.")
    checkpoint: str | None = Field(
        None, description="Run name, `run@step`, `run@best` or a folder; null: the policy itself."
    )
    rollout: RolloutConfig = RolloutConfig(turns=1)
    seed: int = Field(0, description="Random seed.")


Asking = TypeVar("Asking", EvaluateConfig, BestOfNConfig)


def asked(stage: Asking, policy: PolicyConfig, checkpoint: str | None) -> Asking:
    """Return the stage with another policy, and with settings of its kind where they were left out."""
    _, rollout = suited(policy, stage.rollout)
    return stage.model_copy(update={"policy": policy, "rollout": rollout, "checkpoint": checkpoint})
