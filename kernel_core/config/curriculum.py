"""Settings of rewards and of the stages of training."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config


class RewardWeights(Config):
    """Weights of one curriculum stage; see `reward/terms.py` for each term."""

    format: float = 0.0
    compile: float = 0.0
    correct: float = 0.0
    speed: float = 0.0
    own_share: float = 0.0
    thinking: float = 0.0
    length: float = 0.0
    speed_form: Literal["log", "ratio", "clipped", "above_parity"] = Field(
        "log", description="Speed term of a speed-up s: log2(1+s)/2, s, min(s, 3), or s-1 clipped to [0, 10]."
    )
    partial_credit: bool = Field(
        False, description="`correct` of a wrong kernel is the share of trials passed."
    )
    hack_penalty: float = Field(0.0, le=0, description="Penalty added for the verdict `hacked`.")


class StageConfig(Config):
    """One step of the curriculum."""

    name: str
    weights: RewardWeights
    promote_metric: Literal["format_rate", "compile_rate", "correct_rate", "fast_1"]
    promote_at: float = Field(
        ge=0, le=1, description="Promotion threshold for the metric's mean over `window` probes."
    )
    demote_at: float = Field(
        0.0, ge=0, le=1, description="Demotion threshold for the metric that opened this stage."
    )
    window: int = Field(2, ge=1, description="Validation probes averaged for promotion.")
    min_steps: int = Field(1, ge=1)
    max_steps: int | None = Field(None, ge=1, description="Promote after this many steps at the latest.")


def _stages_of(values: dict[str, Any]) -> tuple[StageConfig, ...]:
    from kernel_core.reward.presets import REWARD_PRESETS  # it is made of this module's classes

    return REWARD_PRESETS[values["rewards"]]


class CurriculumConfig(Config):
    """The stages in order, and how often they are measured."""

    FORM: ClassVar[tuple[str, ...]] = ("rewards", "only")
    rewards: Literal["dojo", "seed", "kevin", "dr_kernel"] = Field(
        "dojo", description="Preset of stages and reward weights; `stages` overrides it."
    )
    stages: tuple[StageConfig, ...] = Field(
        default_factory=_stages_of,
        min_length=1,
        description="Stages with reward weights and promotion rules; replaces the preset.",
    )
    only: Literal["format", "compile", "correct", "speed"] | None = Field(
        None, description="Train in this stage only; null: all stages in order."
    )
    probe_every: int = Field(2, ge=1, description="Steps between probes on validation problems.")
    probe_problems: int = Field(12, ge=1, description="Validation problems per probe.")

    @model_validator(mode="after")
    def _only_one(self) -> Self:
        if self.only is not None:
            chosen = tuple(stage for stage in self.stages if stage.name == self.only)
            if not chosen:
                raise ValueError(f"there is no such stage among {[stage.name for stage in self.stages]}")
            object.__setattr__(self, "stages", chosen)
        return self
