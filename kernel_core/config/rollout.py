"""Settings of conversations."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config
from kernel_core.config.gym import GymConfig
from kernel_core.config.policy import PolicyConfig, SamplingConfig


class RetrievalConfig(Config):
    """Which of the corpus kernels are found for a problem."""

    mode: Literal["dense", "hybrid", "random"] = Field(
        "dense",
        description="Nearest vectors; these fused with BM25; or kernels drawn blindly, for an ablation.",
    )
    diversity: float = Field(
        0.2, ge=0, lt=1, description="Weight of unlikeness among the exemplars of one prompt (MMR)."
    )
    languages: tuple[str, ...] = Field((), description="Only kernels in these languages; empty: all.")
    licences: tuple[str, ...] = Field((), description="Only kernels under these licences; empty: all.")
    sources: tuple[str, ...] = Field((), description="Only kernels from these sources; empty: all.")
    verified_only: bool = Field(False, description="Only kernels that `dojo ingest verify` found correct.")


class RolloutConfig(Config):
    """Multi-turn conversations."""

    turns: int = Field(2, ge=1, description="Answers a conversation, with feedback in between.")
    exemplars: int = Field(1, ge=0, description="Corpus kernels shown in the first prompt.")
    exemplar_budget: int | None = Field(
        None, ge=1, description="Tokens that all exemplars may take; one that does not fit is passed over."
    )
    retrieval: RetrievalConfig = RetrievalConfig()
    template: Literal["compact", "full"] = Field("compact", description="Prompt wording under data/prompts/.")
    prompt_budget: int = Field(1400, ge=64, description="Tokens of a prompt; oldest turns are dropped first.")
    thoughts: Literal["drop", "summary", "keep"] = Field(
        "drop", description="What later prompts show of earlier thoughts; a summary is the policy's own."
    )
    stop_at_speedup: float | None = Field(
        None, gt=0, description="A correct kernel this fast ends its conversation; empty: all turns run."
    )
    overlap: bool | None = Field(
        None,
        description="Sample some conversations while others are judged, with the same results; empty: unless "
        "policy and judge are on a GPU both, where sampling would disturb the clock.",
    )
    sampling: SamplingConfig = SamplingConfig()


class RolloutStageConfig(Config):
    """Base of the stages in which a policy writes and the judge decides."""

    policy: PolicyConfig = PolicyConfig()
    rollout: RolloutConfig = RolloutConfig()
    gym: GymConfig = GymConfig()

    @model_validator(mode="after")
    def _no_overlap_on_one_gpu(self) -> Self:
        on_gpu = self.policy.kind == "torch" and self.policy.device == self.gym.device == "cuda"
        if self.rollout.overlap is None and on_gpu:
            object.__setattr__(self, "rollout", self.rollout.model_copy(update={"overlap": False}))
        return self
