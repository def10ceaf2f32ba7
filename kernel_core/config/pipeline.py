"""Settings of all five stages, and of the rounds of expert iteration between them."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config
from kernel_core.config.cold_start import ColdStartConfig
from kernel_core.config.corpus import IndexConfig, IngestConfig
from kernel_core.config.evaluate import BestOfNConfig, EvaluateConfig, asked
from kernel_core.config.train import TrainConfig


class RoundsConfig(Config):
    """Expert iteration in rounds (Singh et al. 2024, arXiv 2312.06585): sample, verify, teach the winners."""

    number: int = Field(0, ge=0, description="Rounds of expert iteration before RL; 0: none.")
    limit: int = Field(
        64, ge=1, description="Training problems of a round, drawn anew from `train.problems`."
    )
    samples: int = Field(8, ge=1, description="Answers per problem in a round.")
    keep: int = Field(
        2,
        ge=1,
        description="Correct kernels kept per problem over all rounds: the fastest, then the most unlike.",
    )
    restart: bool = Field(
        True,
        description="Teach the initial policy anew in each round; false: the policy of the previous round.",
    )
    teach: ColdStartConfig = Field(
        ColdStartConfig(), description="Settings of the teaching that differ from `train.cold_start`."
    )


class PipelineConfig(Config):
    """All five stages, in order."""

    FORM: ClassVar[tuple[str, ...]] = ("run", "root", "train", "evaluate", "best_of_n")
    run: str = Field(
        "quickstart",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Run name: its folder under `root`.",
    )
    root: str = Field("runs", description="Folder of all runs: a local path or an fsspec URI.")
    ingest: IngestConfig = IngestConfig()
    index: IndexConfig = IndexConfig()
    train: TrainConfig = Field(default_factory=TrainConfig)
    rounds: RoundsConfig = RoundsConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    best_of_n: BestOfNConfig = BestOfNConfig()

    @property
    def has_rl(self) -> bool:
        """Return False for the method `frozen`, which leaves the policy as it is."""
        return self.train.method != "frozen"

    def round_asked(self, number: int, checkpoint: str | None) -> EvaluateConfig:
        """Return the evaluation that writes and judges a round's answers to training problems."""
        problems = self.train.problems.model_copy(
            update={"limit": self.rounds.limit, "seed": self.train.problems.seed + number}
        )
        changes = {
            "problems": problems,
            "groups": {},
            "samples_per_problem": self.rounds.samples,
            "k": tuple(sorted({1, self.rounds.samples})),
            "gym": self.train.gym,
            "placement": self.evaluate.placement,
            "rollout": self.train.rollout,
            "seed": self.train.seed + number,
        }
        return asked(self.evaluate.model_copy(update=changes), self.train.policy, checkpoint)

    def round_taught(self, weights: str, chats: str) -> TrainConfig:
        """Return the cold start of a round: of the weights in a folder, on a file of chats."""
        teach = self.rounds.teach
        changes = {name: getattr(teach, name) for name in teach.model_fields_set} | {"data": (chats,)}
        cold_start = self.train.cold_start.model_copy(update=changes)
        return self.train_from(weights).model_copy(update={"cold_start": cold_start})

    def train_from(self, weights: str) -> TrainConfig:
        """Return the training that begins with the taught weights in a folder."""
        policy = self.train.policy.model_copy(update={"model": weights, "revision": None})
        cold_start = self.train.cold_start.model_copy(update={"data": ()})
        return self.train.model_copy(update={"policy": policy, "cold_start": cold_start})

    @model_validator(mode="after")
    def _rounds_teach(self) -> Self:
        if not self.rounds.number:
            return self
        if self.train.policy.kind != "torch":
            raise ValueError("rounds teach local weights: set train.policy.kind=torch or rounds.number=0")
        if not self.round_taught("", "").cold_start.steps:
            raise ValueError("rounds teach nothing with 0 updates: set rounds.teach.steps")
        return self
