"""Settings of the judge as an environment for other trainers, and as a service."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config
from kernel_core.config.corpus import ProblemsConfig
from kernel_core.config.gym import GymConfig
from kernel_core.config.model_kind import PROMPT, completed
from kernel_core.config.rollout import RolloutConfig


class EnvironmentConfig(Config):
    """Conversations with a policy that another program samples."""

    problems: ProblemsConfig = ProblemsConfig()
    rollout: RolloutConfig = RolloutConfig()
    rewards: str = Field("dojo/speed", description="Reward weights as PRESET/STAGE, such as dojo/correct.")

    @model_validator(mode="after")
    def _for_outside_policies(self) -> Self:
        """Fill omitted settings for a pretrained model, without a corpus for exemplars."""
        left_out = {"template": "full", "exemplars": 0, "prompt_budget": PROMPT}
        object.__setattr__(self, "rollout", completed(self.rollout, left_out))
        return self


class ServeConfig(Config):
    """The judge as a service."""

    gym: GymConfig = GymConfig()
    capacity: int = Field(
        128, ge=1, le=4096, description="Maximum number of concurrent calls; more are refused."
    )
    only_known_problems: bool = Field(
        False,
        description="Refuse problems that are not in `environment.problems`: a judge runs a problem's code.",
    )
    environment: EnvironmentConfig | None = Field(
        None, description="Conversations behind OpenEnv's interface; null: none."
    )

    @model_validator(mode="after")
    def _knows_problems(self) -> Self:
        if self.only_known_problems and self.environment is None:
            raise ValueError("only_known_problems needs environment.problems, the problems that are known")
        return self

    @model_validator(mode="after")
    def _names_the_predicted_gpu(self) -> Self:
        if self.environment is not None and self.gym.device == "cpu":
            rollout = completed(self.environment.rollout, {"gpu": self.gym.predict_gpu})
            object.__setattr__(self, "environment", self.environment.model_copy(update={"rollout": rollout}))
        return self
