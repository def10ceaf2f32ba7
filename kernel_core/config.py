"""One frozen config a stage.

The defaults are the vetted setting on a laptop's CPU. A flow's parameter is its config, so the same
fields make the form in the Prefect UI; presets are the deployments in `prefect.yaml`.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Config(BaseModel):
    """Base of all configs: frozen, unknown keys refused, every field described."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GymConfig(Config):
    """The judge."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="Where candidates run.")
    workers: int = Field(
        2, ge=1, description="Judge processes, on a cluster of each node; on CUDA one a GPU."
    )
    cluster: Literal["local", "ray"] = Field(
        "local", description="Judges on this machine, or on every node of a Ray cluster."
    )
    ray_address: str = Field(
        "auto",
        description="Of the Ray cluster, as in `ray.init`; `auto`: RAY_ADDRESS, or a node on this host.",
    )
    rules: Literal["dojo", "kernelbench"] = Field(
        "dojo", description="Whose rules decide; KernelBench's check no honesty and are for comparison only."
    )
    in_flight: int = Field(
        12, ge=1, description="On CUDA, candidates in work at once on each GPU; most of them are compiling."
    )
    warm_runners: int = Field(
        8, ge=1, description="On CUDA, processes that wait beside each GPU with their context up."
    )
    baseline: Literal["eager", "compile"] = Field(
        "eager", description="On CUDA, what a speed-up is relative to; `compile` is torch.compile."
    )
    retime_at: tuple[float, ...] = Field(
        (1.0, 1.2), description="Speed-ups that matter: who is too near to one to tell is timed longer."
    )
    trials: int = Field(3, ge=1, description="Input draws that must all pass.")
    deadline_s: float = Field(
        20.0,
        gt=0,
        description="Seconds after which a candidate is killed; waits for a processor do not count, up to "
        "three times as much.",
    )
    memory_mb: int = Field(4096, ge=256, description="Memory a candidate may use beyond the warm runner's.")
    sandbox: Literal["require", "best-effort"] = Field(
        "best-effort", description="Whether a missing isolation feature of the kernel is an error or a note."
    )
    compile_gate: bool = Field(True, description="Compile every launched kernel for the target GPU.")
    predict_gpu: Literal["H200", "H100", "A100", "L4"] = Field("H200", description="GPU of predicted times.")


class ProblemsConfig(Config):
    """Which problems."""

    suite: str = Field(
        "generated", description="`dojo` (our own files), `generated`, `kernelbench`, or a folder."
    )
    split: Literal["train", "validation", "held_out", "all"] = Field(
        "train", description="Learned from, probed on, or never seen in training."
    )
    levels: tuple[int, ...] = Field((1, 2), description="KernelBench levels.")
    families: tuple[str, ...] = Field((), description="Only these families; empty means all of the split.")
    limit: int | None = Field(None, ge=1, description="At most this many.")
    seed: int = Field(0, description="Of the generator's draw.")
    precision: Literal["own", "float16", "bfloat16"] = Field(
        "own", description="What floating-point inputs and weights are cast to."
    )
    exclude: str | None = Field(
        None,
        description="A file of problem ids to leave out, one a line; `dojo audit --write` makes one of those "
        "that pay for nothing.",
    )


class IngestConfig(Config):
    """Corpus sources into one clean snapshot."""

    sources: tuple[str, ...] = Field(("generator",), description="Names in data/sources.toml, or file paths.")
    generator_rows: int = Field(2000, ge=0, description="Problems the generator contributes.")
    max_rows_per_source: int | None = Field(None, ge=1, description="At most so many; empty: all.")
    near_duplicate_threshold: float = Field(
        0.95, gt=0, le=1, description="Jaccard similarity of token shingles."
    )
    decontaminate_against: tuple[str, ...] = Field(
        ("dojo", "generated"), description="Suites whose evaluation problems must not be in the snapshot."
    )
    seed: int = Field(0, description="Of every draw of this stage.")


class VerifyConfig(Config):
    """Re-judging a snapshot's kernels."""

    gym: GymConfig = GymConfig()
    sources: tuple[str, ...] = Field((), description="Only rows of these sources; empty: all.")
    limit: int | None = Field(None, ge=1, description="Judge so many rows at most, in the snapshot's order.")
    seed: int = Field(0, description="Of the input draws.")


class IndexConfig(Config):
    """Embeddings and a nearest-neighbour index over a snapshot."""

    embedder: str = Field(
        "offline",
        description="`offline` (hashed features, no download) or a sentence-transformers name or path.",
    )
    text: Literal["source", "described"] = Field(
        "source",
        description="What a sentence-transformers model reads; `described` puts operators and shapes first.",
    )
    batch_size: int = Field(256, ge=1, description="Texts embedded at once.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the embedder runs.")


class PolicyConfig(Config):
    """The model that writes kernels."""

    kind: Literal["torch", "openai", "scripted"] = Field(
        "torch", description="A model of ours, one behind an endpoint, or prepared answers."
    )
    model: str = Field(
        "shipped",
        description="`shipped` (our tiny policy), `new` (from nothing), or a Hugging Face name or path.",
    )
    revision: str | None = Field(None, description="Of a Hugging Face model, pinned.")
    endpoint: str | None = Field(None, description="Base URL of an OpenAI-compatible server.")
    api_key_env: str = Field("OPENAI_API_KEY", description="Environment variable that holds the key.")
    lora_rank: int | None = Field(
        None, ge=1, description="Train LoRA adapters of this rank; empty: all weights."
    )
    gradient_checkpointing: bool = Field(
        False, description="Compute activations again in the backward pass: less memory, a third more time."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the policy runs.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Of the weights.")
    hidden_size: int = Field(192, ge=32, description="Of a `new` policy.")
    num_layers: int = Field(5, ge=1, description="Of a `new` policy.")
    num_heads: int = Field(6, ge=1, description="Of a `new` policy.")
    vocab_size: int = Field(2048, ge=300, description="Of a `new` policy's tokenizer.")
    max_context: int = Field(2048, ge=128, description="Tokens of prompt and completion together.")
    decoding: Literal["growing", "static"] = Field(
        "growing", description="`static` keeps shapes fixed and, on CUDA, replays recorded graphs."
    )


class SamplingConfig(Config):
    """How completions are drawn."""

    temperature: float = Field(1.0, ge=0, description="0 is greedy. Nothing else shapes the distribution.")
    max_new_tokens: int = Field(400, ge=1, description="Tokens of one answer.")
    batch_size: int = Field(64, ge=1, description="Conversations sampled at once.")


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


class RewardWeights(Config):
    """Weights of one curriculum stage; see `rewards.py` for each term."""

    format: float = 0.0
    compile: float = 0.0
    correct: float = 0.0
    speed: float = 0.0
    own_share: float = 0.0
    thinking: float = 0.0
    length: float = 0.0
    speed_form: Literal["log", "ratio", "clipped", "above_parity"] = Field(
        "log", description="How a speed-up counts: log2(1+s)/2, s, min(s, 3) or s-1 above parity, at most 10."
    )
    partial_credit: bool = Field(
        False, description="A wrong kernel's `correct` is the share of trials it passed."
    )
    hack_penalty: float = Field(0.0, le=0, description="Added when the verdict is `hacked`.")


class StageConfig(Config):
    """One step of the curriculum."""

    name: str
    weights: RewardWeights
    promote_metric: Literal["format_rate", "compile_rate", "correct_rate", "fast_1"]
    promote_at: float = Field(
        ge=0, le=1, description="Mean of the metric over the window that opens the next stage."
    )
    demote_at: float = Field(
        0.0, ge=0, le=1, description="The run falls back when the metric that opened this stage is below."
    )
    window: int = Field(2, ge=1, description="Probes on validation problems that are averaged.")
    min_steps: int = Field(1, ge=1)
    max_steps: int | None = Field(
        None, ge=1, description="Promoted after so many steps whatever the metric says."
    )


def _stages_of(values: dict[str, Any]) -> tuple[StageConfig, ...]:
    from kernel_core.reward.presets import REWARD_PRESETS  # it is made of this module's classes

    return REWARD_PRESETS[values["rewards"]]


class CurriculumConfig(Config):
    """The stages in order, and how often they are measured."""

    rewards: Literal["dojo", "seed", "kevin", "dr_kernel"] = Field(
        "dojo", description="Whose stages and rewards; `stages`, where given, replace them."
    )
    stages: tuple[StageConfig, ...] = Field(default_factory=_stages_of, min_length=1)
    only: Literal["format", "compile", "correct", "speed"] | None = Field(
        None, description="Train in this stage alone; empty: in all of them, one after the other."
    )
    probe_every: int = Field(2, ge=1, description="Steps between probes on validation problems.")
    probe_problems: int = Field(12, ge=1, description="Validation problems a probe asks.")

    @model_validator(mode="after")
    def _only_one(self) -> Self:
        if self.only is not None:
            chosen = tuple(stage for stage in self.stages if stage.name == self.only)
            if not chosen:
                raise ValueError(f"there is no such stage among {[stage.name for stage in self.stages]}")
            object.__setattr__(self, "stages", chosen)
        return self


class ColdStartConfig(Config):
    """Supervised training that precedes RL.

    It imitates a realistic corpus, in which not every kernel is right or fast, so that RL has honest
    head-room; what is left of the three shares are fused and tuned kernels.
    """

    data: tuple[str, ...] = Field(
        (),
        description="Files of chats (JSON lines) to learn from instead of the snapshot's kernels.",
    )
    steps: int = Field(400, ge=0, description="Updates.")
    batch_tokens: int = Field(8192, ge=256, description="Tokens an update.")
    lr: float = Field(1.5e-3, gt=0, description="Learning rate at its highest.")
    warmup: int = Field(20, ge=0, description="Updates until the learning rate is at its highest.")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's.")
    repair_share: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of conversations with a second turn, which looks back on the first.",
    )
    mistake_share: float = Field(
        0.35, ge=0, le=1, description="Share of answers that are kernels with a typical fault."
    )
    naive_share: float = Field(
        0.35, ge=0, le=1, description="Share of first answers that launch one kernel an operator."
    )
    lazy_share: float = Field(
        0.0, ge=0, le=1, description="Share of first answers that leave all but the last operator to PyTorch."
    )
    conversations: int = Field(4000, ge=1, description="Examples to learn from.")
    judged: int = Field(
        400, ge=1, description="Kernels that the judge is asked about at most; second turns share them."
    )
    minutes: float | None = Field(None, gt=0, description="Stop after so long.")
    seed: int = Field(0, description="Of every draw of this stage.")


class SamplerConfig(Config):
    """Who writes the rollouts of training; see `policy/sampler.py`."""

    kind: Literal["inline", "copy", "server"] = Field(
        "inline", description="The trained model, a copy of it in `policy.dtype`, or a vLLM server."
    )
    endpoint: str | None = Field(None, description="Base URL of the server.")
    max_gap: float = Field(
        0.1, gt=0, description="Mean |difference| in nats a token from the trainer at which training stops."
    )


class MismatchConfig(Config):
    """What is done where the sampler's probabilities are not the trainer's; see `learn/mismatch.py`."""

    band: float | None = Field(
        None, gt=0, description="A conversation whose geometric mean ratio leaves 1 ± band is rejected."
    )
    veto: float | None = Field(
        None, gt=0, lt=1, description="A token whose ratio is below rejects what `veto_scope` says."
    )
    veto_scope: Literal["turn", "conversation"] = "conversation"
    importance_cap: float | None = Field(
        None, ge=1, description="Weight tokens by their ratio, at most this; empty: no weights."
    )


class _RollingOut(Config):
    """A policy writes, a judge judges."""

    policy: PolicyConfig = PolicyConfig()
    rollout: RolloutConfig = RolloutConfig()
    gym: GymConfig = GymConfig()

    @model_validator(mode="after")
    def _nobody_disturbs_the_clock(self) -> Self:
        on_gpu = self.policy.kind == "torch" and self.policy.device == self.gym.device == "cuda"
        if self.rollout.overlap is None and on_gpu:
            object.__setattr__(self, "rollout", self.rollout.model_copy(update={"overlap": False}))
        return self


class TrainConfig(_RollingOut):
    """RL on verified rewards."""

    steps: int = Field(12, ge=1, description="In all; raise it to go on.")
    problems_per_step: int = Field(4, ge=1, description="Problems sampled a step.")
    group_size: int = Field(8, ge=2, description="Conversations a problem.")
    estimator: Literal["trloo", "grpo", "grpo_std", "rloo", "dr_grpo", "kevin"] = Field(
        "trloo", description="Of advantages; docs/learning.md has each formula."
    )
    credit: Literal["progress", "absolute"] = Field(
        "progress", description="A turn is paid for what it adds to the one before, or for its whole kernel."
    )
    gamma: float = Field(0.4, ge=0, le=1, description="Discount over turns.")
    returns: Literal["sum", "max"] = Field("sum", description="How later rewards count for a turn.")
    lr: float = Field(2e-4, gt=0, description="Learning rate.")
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
        "none", description="Leave out correct turns whose own kernels do little of the work."
    )
    mask_regressions: bool = Field(
        False, description="Leave out turns that lost an earlier success, as published; it biases."
    )
    resample_rounds: int = Field(
        0, ge=0, description="Times that problems are drawn again in a step for groups that are all alike."
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients longer than this are shortened.")
    minibatch_tokens: int = Field(8192, ge=256, description="Tokens in one forward pass.")
    learners: int = Field(1, ge=1, description="Processes that update together, a GPU each.")
    updates_per_step: int = Field(1, ge=1, description="Passes over a step's turns.")
    checkpoint_every: int = Field(1, ge=1, description="Steps between checkpoints.")
    keep_checkpoints: int = Field(
        3, ge=1, description="Older ones are removed, except the best on validation problems."
    )
    minutes: float | None = Field(None, gt=0, description="Finish after the step that passes this.")
    alarms_stop: tuple[Literal["collapse", "junk", "hacks", "drift", "idle"], ...] = Field(
        (), description="Early warnings that end the run; it goes on when this or lr is changed."
    )
    seed: int = Field(0, description="Of every draw of this stage.")
    problems: ProblemsConfig = ProblemsConfig()
    sampler: SamplerConfig = SamplerConfig()
    cold_start: ColdStartConfig = ColdStartConfig()
    curriculum: CurriculumConfig = Field(default_factory=CurriculumConfig)


class EvaluateConfig(_RollingOut):
    """A policy on held-out problems."""

    problems: ProblemsConfig = ProblemsConfig(split="held_out", limit=24, seed=1000)
    samples_per_problem: int = Field(2, ge=1, description="Conversations a problem.")
    k: tuple[int, ...] = Field((1, 2), description="pass@k for these k.")
    thresholds: tuple[float, ...] = Field((0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0), description="p of fast_p.")
    checkpoint: str | None = Field(
        None, description="A run's name, `run@step`, `run@best`, or a folder; empty: the policy itself."
    )
    seed: int = Field(0, description="Of every draw of this stage.")


class BestOfNConfig(_RollingOut):
    """The best kernel a policy can write for each problem."""

    problems: ProblemsConfig = ProblemsConfig(split="held_out", limit=6, seed=2000)
    mode: Literal["parallel", "sequential"] = Field("parallel", description="N samples at once, or T turns.")
    n: int = Field(8, ge=1, description="Samples, or turns.")
    checkpoint: str | None = Field(
        None, description="As in evaluate: a run's name, `run@step`, `run@best`, or a folder."
    )
    rollout: RolloutConfig = RolloutConfig(turns=1)
    seed: int = Field(0, description="Of every draw of this stage.")


class PipelineConfig(Config):
    """All five stages, in order."""

    run: str = Field(
        "quickstart", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Folder under the root."
    )
    root: str = Field("runs", description="Local folder or any fsspec URI.")
    ingest: IngestConfig = IngestConfig()
    index: IndexConfig = IndexConfig()
    train: TrainConfig = Field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = EvaluateConfig()
    best_of_n: BestOfNConfig = BestOfNConfig()
