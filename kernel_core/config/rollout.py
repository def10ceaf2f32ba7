"""Settings of conversations."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config
from kernel_core.config.gym import GymConfig
from kernel_core.config.model_kind import ANSWER, PROMPT, completed, is_pretrained
from kernel_core.config.placement import PlacementConfig
from kernel_core.config.policy import PolicyConfig, SamplingConfig


class RetrievalConfig(Config):
    """Retrieval of corpus kernels for a problem."""

    mode: Literal["dense", "hybrid", "random"] = Field(
        "dense",
        description="Nearest vectors, vectors fused with BM25, or random kernels as an ablation.",
    )
    diversity: float = Field(
        0.2, ge=0, lt=1, description="MMR diversity weight among the exemplars of a prompt."
    )
    languages: tuple[str, ...] = Field((), description="Languages to retrieve; []: all.")
    licences: tuple[str, ...] = Field((), description="Licences to retrieve; []: all.")
    sources: tuple[str, ...] = Field((), description="Sources to retrieve from; []: all.")
    verified_only: bool = Field(
        False, description="Retrieve only kernels that our judge found correct, in an ingest or its `verify`."
    )


class RolloutConfig(Config):
    """Multi-turn conversations."""

    turns: int = Field(2, ge=1, description="Turns per conversation, with the judge's feedback in between.")
    exemplars: int = Field(1, ge=0, description="Retrieved kernels in the first prompt.")
    exemplar_budget: int | None = Field(
        None, ge=1, description="Token budget of all exemplars; an exemplar that does not fit is skipped."
    )
    retrieval: RetrievalConfig = RetrievalConfig()
    template: Literal["auto", "compact", "full"] = Field(
        "auto",
        description="Prompt template in data/prompts/; `auto`: `full` for pretrained models, else `compact`.",
    )
    trace: bool = Field(
        False, description="Show the operators that the reference calls, with shapes, after its text."
    )
    gpu: str | None = Field(
        None, description="GPU named in the full prompt; null: the judging or predicted GPU."
    )
    prompt_budget: int = Field(
        1400, ge=64, description="Maximum prompt tokens; the oldest turns are dropped first."
    )
    thoughts: Literal["drop", "summary", "keep"] = Field(
        "drop", description="Earlier reasoning in later prompts; `summary` is written by the policy."
    )
    stop_at_speedup: float | None = Field(
        None,
        gt=0,
        description="End a conversation at a correct kernel with at least this speed-up; null: never. "
        "Kernels are then timed in every stage.",
    )
    overlap: bool | None = Field(
        None,
        description="Sample while other conversations are judged; null: unless policy and judge share a GPU.",
    )
    sampling: SamplingConfig = SamplingConfig()


def suited(
    policy: PolicyConfig, rollout: RolloutConfig, weights: str | None = None
) -> tuple[PolicyConfig, RolloutConfig]:
    """Both with the settings of a pretrained model where they were left out, if it is one.

    `weights` is the folder that is loaded in place of `policy.model`.
    """
    if not is_pretrained(policy, weights):
        return policy, rollout
    sampling = completed(rollout.sampling, {"max_new_tokens": ANSWER})
    if "max_context" in policy.model_fields_set:
        room = max(64, policy.max_context - sampling.max_new_tokens)
    else:
        room = PROMPT
    rollout = completed(rollout, {"prompt_budget": min(PROMPT, room)})
    rollout = rollout.model_copy(
        update={"sampling": sampling, "template": "full" if rollout.template == "auto" else rollout.template}
    )
    return completed(policy, {"max_context": rollout.prompt_budget + sampling.max_new_tokens}), rollout


class RolloutStageConfig(Config):
    """Base of the stages in which a policy writes and the judge decides."""

    learns: ClassVar[bool] = False
    policy: PolicyConfig = PolicyConfig()
    rollout: RolloutConfig = RolloutConfig()
    gym: GymConfig = GymConfig()
    placement: PlacementConfig = PlacementConfig()

    @property
    def policy_on_gpu(self) -> bool:
        """Return True if the policy is on GPUs, of this host or of a cluster."""
        return self.policy.kind == "torch" and self.policy.device == "cuda"

    @property
    def samples_on_gpu(self) -> bool:
        """Return True if the policy is on GPUs of this host."""
        return self.policy_on_gpu and self.placement.cluster == "local"

    @property
    def policy_here(self) -> PolicyConfig:
        """Return the policy as this process has it: on its CPU where a cluster learns and samples."""
        if self.placement.cluster == "local":
            return self.policy
        return self.policy.model_copy(update={"device": "cpu"})

    @property
    def judges_on_gpu(self) -> bool:
        """Return True if judges are on GPUs of this host."""
        return self.gym.device == "cuda" and self.gym.cluster == "local"

    @property
    def model_name(self) -> str:
        """Return the stored answers, the checkpoint or the model, as a list of runs names it."""
        checkpoint = getattr(self, "answers", None) or getattr(self, "checkpoint", None)
        words = self.policy.model if checkpoint in (None, "@base") else checkpoint
        return "/".join(words.rstrip("/").split("/")[-2:])

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        policy, rollout = suited(self.policy, self.rollout)
        if self.gym.device == "cpu":
            rollout = completed(rollout, {"gpu": self.gym.predict_gpu})
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "rollout", rollout)
        if self.placement.cluster == "ray":
            object.__setattr__(self, "gym", completed(self.gym, {"cluster": "ray"}))
        return self

    @model_validator(mode="after")
    def _places_what_is_on_gpus(self) -> Self:
        place = self.placement
        if place.cluster == "ray" and not self.learns:
            raise ValueError("placement.cluster=ray places learners; this stage needs gym.cluster=ray alone")
        if place.learn and not self.learns:
            raise ValueError("placement.learn names GPUs, but this stage learns nothing")
        if (place.learn or place.sample) and not self.samples_on_gpu:
            raise ValueError("placement.learn and placement.sample need policy.kind=torch policy.device=cuda")
        if place.judge and not self.judges_on_gpu:
            raise ValueError(
                "placement.judge places judges on this host: it needs gym.device=cuda gym.cluster=local"
            )
        return self
