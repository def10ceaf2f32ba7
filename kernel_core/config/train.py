"""Settings of RL."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from kernel_core.config.base import Config
from kernel_core.config.cold_start import ColdStartConfig
from kernel_core.config.corpus import ProblemsConfig
from kernel_core.config.curriculum import CurriculumConfig
from kernel_core.config.model_kind import completed, is_pretrained, learning_settings
from kernel_core.config.policy import PolicyConfig
from kernel_core.config.remote import check_trained_there
from kernel_core.config.rollout import RolloutStageConfig

SERVER_CAP = 2.0
"""`mismatch.importance_cap` for a server, which never computes as the trainer does, and for answers that
are an update old. The usual value."""


class SamplerConfig(Config):
    """The writer of the rollouts of training; see `policy/sampler.py`."""

    kind: Literal["inline", "copy", "vllm", "server"] = Field(
        "inline",
        description="The trained model, a copy of it in `policy.dtype`, a vLLM server that training "
        "starts, or one at `endpoint`.",
    )
    python: str | None = Field(
        None, description="For `vllm`, the Python of an environment that has vLLM; empty: this one's."
    )
    endpoint: str | None = Field(None, description="For `server`, its base URL.")
    max_gap: float = Field(
        0.1, gt=0, description="Mean |difference| in nats a token from the trainer at which training stops."
    )

    @property
    def is_server(self) -> bool:
        """Whether a server writes, which batches the requests of many conversations by itself."""
        return self.kind in ("vllm", "server")


class MismatchConfig(Config):
    """What is done where the sampler's probabilities are not the trainer's; see `learn/mismatch.py`."""

    band: float | None = Field(
        None, gt=0, description="Rejects a conversation when its geometric mean ratio leaves 1 ± band."
    )
    veto: float | None = Field(
        None, gt=0, lt=1, description="A token with a ratio below it rejects what `veto_scope` says."
    )
    veto_scope: Literal["turn", "conversation"] = "conversation"
    importance_cap: float | None = Field(
        None,
        ge=1,
        description="Weight tokens by their ratio, at most this; empty: no weights; a server and "
        "`sample_ahead` have 2.",
    )


class TrainConfig(RolloutStageConfig):
    """RL on verified rewards, and the methods that it is compared with."""

    learns: ClassVar[bool] = True
    FORM: ClassVar[tuple[str, ...]] = ("policy", "steps", "minutes", "problems", "curriculum")
    method: Literal["rl", "expert_iteration", "frozen", "rl_shuffled"] = Field(
        "rl", description="What a step's verdicts teach; see `learn/methods.py`."
    )
    steps: int = Field(12, ge=1, description="In all; raise it to go on.")
    candidates: int | None = Field(
        None, ge=1, description="Finish after the step that passes so many judged answers."
    )
    problems_per_step: int = Field(4, ge=1, description="Problems sampled a step.")
    group_size: int = Field(8, ge=2, description="Conversations a problem.")
    estimator: Literal["trloo", "grpo", "grpo_std", "rloo", "dr_grpo", "kevin"] = Field(
        "trloo", description="The estimator of advantages; docs/learning.md has each formula."
    )
    credit: Literal["progress", "absolute"] = Field(
        "progress", description="A turn is paid for what it adds to the one before, or for its whole kernel."
    )
    gamma: float = Field(0.4, ge=0, le=1, description="Discount over turns.")
    returns: Literal["sum", "max"] = Field("sum", description="How later rewards count for a turn.")
    lr: float = Field(2e-4, gt=0, description="Learning rate.")
    warmup: int = Field(0, ge=0, description="Steps until the learning rate is reached.")
    clip_low: float = Field(0.2, gt=0, description="How far a probability ratio may fall below 1.")
    clip_high: float = Field(0.28, gt=0, description="How far it may rise above 1.")
    dual_clip: float = Field(3.0, gt=1, description="Bound on the ratio where the advantage is negative.")
    kl_coefficient: float = Field(0.0, ge=0, description="Pull towards the policy that training began with.")
    entropy_coefficient: float = Field(0.0, ge=0, description="Reward for undecidedness.")
    aggregation: Literal["constant", "token", "turn"] = Field(
        "constant", description="What the sum over tokens is divided by; see `learn/loss.py`."
    )
    mismatch: MismatchConfig = MismatchConfig()
    profile_rejection: Literal["none", "published", "corrected"] = Field(
        "none", description="Leave out correct turns with little of the work in their own kernels."
    )
    mask_regressions: bool = Field(
        False, description="Leave out turns that lost an earlier success, as published; it biases."
    )
    resample_rounds: int = Field(
        0, ge=0, description="Times that problems are drawn again in a step for groups that are all alike."
    )
    max_grad_norm: float | None = Field(
        None, gt=0, description="Gradients longer than this are shortened; empty: than thrice their usual."
    )
    minibatch_tokens: int = Field(8192, ge=256, description="Tokens in one forward pass.")
    learners: int | None = Field(
        None,
        ge=1,
        description="Processes that update together, a GPU each; empty: one on each of `placement.learn`.",
    )
    learner_timeout_s: float = Field(
        1800.0, gt=0, description="Seconds that learners wait for one another within an update."
    )
    updates_per_step: int = Field(1, ge=1, description="Passes over a step's turns.")
    sample_ahead: bool = Field(
        False,
        description="Write and judge the next step's answers during the update, with weights one update old.",
    )
    checkpoint_every: int = Field(1, ge=1, description="Steps between checkpoints.")
    checkpoint_minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes between checkpoints as well; the best step so far is always kept.",
    )
    keep_checkpoints: int = Field(
        3, ge=1, description="Older ones are removed, except the best on validation problems."
    )
    minutes: float | None = Field(None, gt=0, description="Finish after the step that passes this.")
    alarms_stop: tuple[Literal["collapse", "junk", "hacks", "drift", "idle"], ...] = Field(
        (), description="Early warnings that end the run; it goes on when this or lr is changed."
    )
    seed: int = Field(0, description="Seeds every draw of this stage.")
    problems: ProblemsConfig = ProblemsConfig()
    judged_in_full: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Where a stage pays for no speed, the share of answers judged in full. The others are "
        "judged fast, and the share both ways, to count differing verdicts; 1: all in full.",
    )
    sampler: SamplerConfig = SamplerConfig()
    cold_start: ColdStartConfig = ColdStartConfig()
    curriculum: CurriculumConfig = Field(default_factory=CurriculumConfig)

    @model_validator(mode="after")
    def _can_be_trained(self) -> Self:
        if self.policy.kind == "openai":
            raise ValueError(
                "a model behind an endpoint cannot be trained: evaluate it, or name weights with "
                "policy.kind=torch policy.model=PATH"
            )
        check_trained_there(self)
        if self.sample_ahead and self.policy.kind == "torch" and self.sampler.kind == "inline":
            raise ValueError("sample_ahead needs a sampler beside the update: set sampler.kind=copy")
        return self

    @property
    def num_learners(self) -> int:
        """Processes that update together: those that were asked for or placed, else one."""
        return self.learners or len(self.placement.learn) or 1

    @property
    def has_group(self) -> bool:
        """Whether learners are processes beside this one, of this host or of a cluster."""
        return self.num_learners > 1 or self.placement.cluster == "ray"

    @property
    def as_taught(self) -> TrainConfig:
        """The settings as the cold start has them: which weights it trains, and its tokens in one pass."""
        changes: dict[str, object] = {}
        if self.cold_start.minibatch_tokens is not None:
            changes["minibatch_tokens"] = self.cold_start.minibatch_tokens
        if self.cold_start.all_weights:
            changes["policy"] = self.policy.model_copy(update={"lora_rank": None})
        return self.model_copy(update=changes)

    @property
    def policy_to_teach(self) -> PolicyConfig:
        """The policy as a cold start's process has it: on its CPU where learners share the cold start."""
        is_shared = self.has_group and self.cold_start.shared
        return self.policy.model_copy(update={"device": "cpu"}) if is_shared else self.policy

    @model_validator(mode="after")
    def _places_as_many(self) -> Self:
        learn, sample = self.placement.learn, self.placement.sample
        if learn and self.num_learners != len(learn):
            raise ValueError(
                f"learners={self.learners}, but placement.learn names {len(learn)} GPUs; leave one out"
            )
        if self.placement.cluster == "ray" and (self.policy.kind != "torch" or self.sampler.kind == "inline"):
            raise ValueError(
                "placement.cluster=ray samples on a node: set policy.kind=torch sampler.kind=vllm (or copy)"
            )
        if self.sampler.kind == "server" and sample:
            raise ValueError("placement.sample names GPUs, but sampler.kind=server samples elsewhere")
        if len(sample) > 1 and self.sampler.kind != "vllm":
            raise ValueError(
                f"sampler.kind={self.sampler.kind} uses one GPU; placement.sample={list(sample)}"
            )
        if self.sampler.kind == "inline" and sample not in ((), learn[:1]):
            raise ValueError(
                "sampler.kind=inline samples where it learns: set sampler.kind=copy for placement.sample"
            )
        return self

    @model_validator(mode="after")
    def _learns_as_its_kind(self) -> Self:
        if is_pretrained(self.policy):
            own, cold_start = learning_settings(self.policy)
            changed = {name: value for name, value in own.items() if name not in self.model_fields_set}
            for name, value in changed.items():
                object.__setattr__(self, name, value)
            object.__setattr__(self, "cold_start", completed(self.cold_start, cold_start))
        if self.sampler.is_server or self.policy.kind == "tinker" or self.sample_ahead:
            mismatch = completed(self.mismatch, {"importance_cap": SERVER_CAP})
            object.__setattr__(self, "mismatch", mismatch)
        return self

    def described(self) -> str:
        """The settings that depend on the kind of model, in words for a log."""
        kind = "pretrained" if is_pretrained(self.policy) else "ours"
        rollout, cold_start = self.rollout, self.cold_start
        return (
            f"model {self.policy.model} is {kind}: rollout.template={rollout.template} "
            f"rollout.prompt_budget={rollout.prompt_budget} "
            f"rollout.sampling.max_new_tokens={rollout.sampling.max_new_tokens} "
            f"policy.max_context={self.policy.max_context} lr={self.lr:g} cold_start.lr={cold_start.lr:g} "
            f"cold_start.mistake_share={cold_start.mistake_share:g} "
            f"cold_start.naive_share={cold_start.naive_share:g} "
            f"cold_start.lazy_share={cold_start.lazy_share:g} "
            f"checkpoint_minutes={self.checkpoint_minutes} "
            f"mismatch.importance_cap={self.mismatch.importance_cap}"
        )
