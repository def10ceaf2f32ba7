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
        description="Trained model, copy in `policy.dtype`, managed vLLM server, or the server at "
        "`endpoint`.",
    )
    python: str | None = Field(None, description="Python executable of the vLLM environment; null: this one.")
    endpoint: str | None = Field(None, description="Base URL of the server.")
    max_gap: float = Field(
        0.1,
        gt=0,
        description="Training stops when the mean |log-probability gap| to the trainer exceeds this, "
        "in nats per token.",
    )

    @property
    def is_server(self) -> bool:
        """Return True if a server writes, which batches the requests of many conversations by itself."""
        return self.kind in ("vllm", "server")


class MismatchConfig(Config):
    """Correction where the sampler's probabilities are not the trainer's; see `learn/mismatch.py`."""

    band: float | None = Field(
        None,
        gt=0,
        description="Reject conversations with a geometric-mean probability ratio outside 1 ± band.",
    )
    veto: float | None = Field(
        None, gt=0, lt=1, description="Reject on a token with a probability ratio below this."
    )
    veto_scope: Literal["turn", "conversation"] = Field(
        "conversation", description="Unit that a veto rejects."
    )
    importance_cap: float | None = Field(
        None,
        ge=1,
        description="Cap of the truncated importance weights; null: no weights, or 2 for a server or "
        "`sample_ahead`.",
    )


class TrainConfig(RolloutStageConfig):
    """RL on verified rewards, and the methods that it is compared with."""

    learns: ClassVar[bool] = True
    FORM: ClassVar[tuple[str, ...]] = ("policy", "steps", "minutes", "problems", "curriculum")
    method: Literal["rl", "expert_iteration", "frozen", "rl_shuffled"] = Field(
        "rl", description="Training method; the others are baselines and controls of `rl`."
    )
    steps: int = Field(12, ge=1, description="Total steps; raise it to continue a finished run.")
    candidates: int | None = Field(
        None, ge=1, description="Finish after the step that reaches this many judged answers."
    )
    problems_per_step: int = Field(4, ge=1, description="Problems per step.")
    group_size: int = Field(8, ge=2, description="Conversations per problem.")
    estimator: Literal["trloo", "grpo", "grpo_std", "rloo", "dr_grpo", "kevin"] = Field(
        "trloo", description="Advantage estimator; formulas in learning.md."
    )
    credit: Literal["progress", "absolute"] = Field(
        "progress", description="Reward of a turn: its gain over the turn before, or the worth of its kernel."
    )
    gamma: float = Field(0.4, ge=0, le=1, description="Discount factor per turn.")
    returns: Literal["sum", "max"] = Field("sum", description="Aggregation of the rewards of later turns.")
    lr: float = Field(2e-4, gt=0, description="Learning rate.")
    warmup: int = Field(0, ge=0, description="Linear warm-up, in steps.")
    clip_low: float = Field(0.2, gt=0, description="Lower PPO clip: the ratio stays above 1 - clip_low.")
    clip_high: float = Field(0.28, gt=0, description="Upper PPO clip: the ratio stays below 1 + clip_high.")
    dual_clip: float = Field(
        3.0,
        gt=1,
        description="Dual-clip constant c: at a negative advantage A the objective is at least c·A.",
    )
    kl_coefficient: float = Field(
        0.0, ge=0, description="Coefficient of the KL penalty to the initial policy."
    )
    entropy_coefficient: float = Field(0.0, ge=0, description="Entropy bonus coefficient.")
    aggregation: Literal["constant", "token", "turn"] = Field(
        "constant",
        description="Normalisation of the token loss: a constant, the step's tokens, or each turn's length.",
    )
    mismatch: MismatchConfig = MismatchConfig()
    profile_rejection: Literal["none", "published", "corrected"] = Field(
        "none",
        description="Dr. Kernel's rejection sampling of turns in the loss by own-kernel share; unknown "
        "shares: `published` rejects, `corrected` keeps.",
    )
    mask_regressions: bool = Field(
        False, description="Drop turns that lost an earlier success, as published; biased."
    )
    mask_truncated: bool = Field(
        False,
        description="Drop truncated answers from loss and baseline (DAPO's overlong filtering); pretrained "
        "models: true.",
    )
    resample_rounds: int = Field(
        0, ge=0, description="Maximum redraws of problems for groups with equal rewards."
    )
    max_grad_norm: float | None = Field(
        None, gt=0, description="Gradient-norm clip; null: 3x the running norm."
    )
    minibatch_tokens: int = Field(8192, ge=256, description="Tokens per forward pass.")
    learners: int | None = Field(
        None,
        ge=1,
        description="Learner processes, one GPU each; null: one for each GPU of `placement.learn`, or of "
        "those that are visible.",
    )
    learner_timeout_s: float = Field(
        1800.0, gt=0, description="Collective timeout between learners, in seconds."
    )
    updates_per_step: int = Field(1, ge=1, description="Passes over the turns of a step.")
    sample_ahead: bool = Field(
        False,
        description="Sample and judge the next step during the update, one update off-policy.",
    )
    checkpoint_every: int = Field(1, ge=1, description="Steps between checkpoints.")
    checkpoint_minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes between checkpoints, in addition; the best step is always kept.",
    )
    keep_checkpoints: int = Field(
        3, ge=1, description="Checkpoints kept, besides the best on validation problems."
    )
    minutes: float | None = Field(
        None, gt=0, description="Finish after the step that passes this many minutes."
    )
    alarms_stop: tuple[Literal["collapse", "junk", "hacks", "drift", "idle"], ...] = Field(
        (), description="Alarms that end the run; change this or `lr` to continue it."
    )
    seed: int = Field(0, description="Random seed.")
    problems: ProblemsConfig = ProblemsConfig()
    best_kernels: bool = Field(
        False,
        description="Afterwards, judge the fastest kernels again; each problem's best is in `best-kernels/`.",
    )
    judged_in_full: float = Field(
        1.0,
        gt=0,
        le=1,
        description="In stages without a speed reward, share of answers judged in full; the rest is "
        "judged fast.",
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
        """Return True if learners are processes beside this one, of this host or of a cluster."""
        return self.num_learners > 1 or self.placement.cluster == "ray"

    @property
    def as_taught(self) -> TrainConfig:
        """Return the settings of the cold start: the weights it trains, and its tokens in one pass."""
        changes: dict[str, object] = {}
        if self.cold_start.minibatch_tokens is not None:
            changes["minibatch_tokens"] = self.cold_start.minibatch_tokens
        if self.cold_start.all_weights:
            changes["policy"] = self.policy.model_copy(update={"lora_rank": None})
        return self.model_copy(update=changes)

    @property
    def policy_to_teach(self) -> PolicyConfig:
        """Return the policy of a cold start's process: on its CPU where learners share the cold start."""
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
        """Return the settings that depend on the kind of model, in words for a log."""
        kind = "pretrained" if is_pretrained(self.policy) else "small, by its vocabulary"
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
            f"mismatch.importance_cap={self.mismatch.importance_cap} mask_truncated={self.mask_truncated}"
        )
