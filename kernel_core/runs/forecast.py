"""Forecast of the stages of a pipeline or a comparison: work, place, duration, and the memory of the weights.

Times are of one H200 and scale with the weights. Rates were measured with a model of 0.5 B weights
(docs/learning.md, docs/results/real_model.md); conversations and answers of other lengths take other times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kernel_core.config import (
    BestOfNConfig,
    CompareConfig,
    Config,
    EvaluateConfig,
    PipelineConfig,
    PolicyConfig,
    ProblemsConfig,
    TrainConfig,
)
from kernel_core.config.model_kind import is_untaught
from kernel_core.problems.generators import WITHOUT_LIMIT
from kernel_core.runs.naming import AFTER, ARM_CARD, BEFORE, UNTAUGHT_CARD, WINNERS, round_folder
from kernel_core.runs.resolve import needs_cold_start

MEASURED_WEIGHTS = 0.494e9
"""Weights of the model that the rates are of, Qwen2.5-Coder-0.5B."""
TAUGHT_TOKENS_S, WRITTEN_ANSWERS_S, JUDGED_ANSWERS_S = 88_000.0, 9.0, 0.83
"""880 updates of 65,536 tokens in 654 s; 2,800 answers in 104 s and 1,600 verdicts in 642 s on three GPUs."""
TRAINED_BYTES, FROZEN_BYTES = 18, 2
"""Bytes per weight.

Trained: half precision, and master, gradient and two moments in float32. Frozen: half.
"""


class Planned(NamedTuple):
    """One stage."""

    stage: str
    work: str
    place: str
    minutes: float | None
    """None where no rate was measured: on a CPU, and for a model of unknown size."""
    gigabytes: float | None = None
    """Weights, gradients and moments; activations come on top."""

    def __str__(self) -> str:
        time = "time unknown" if self.minutes is None else f"about {self.minutes:.0f} min on an H200"
        memory = "" if self.gigabytes is None else f", at least {self.gigabytes:.1f} GB of weights"
        return f"{self.stage}: {self.work}; {self.place}, {time}{memory}"


def weights_in(policy: PolicyConfig) -> float | None:
    """Return the number of weights of a model's folder, by the sizes of its files; None for any other."""
    folder = Path(policy.model)
    files = list(folder.glob("*.safetensors")) if folder.is_dir() else []
    if not files:
        return None
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").is_file() else {}
    is_half = str(config.get("dtype") or config.get("torch_dtype")) in ("bfloat16", "float16")
    return sum(file.stat().st_size for file in files) / (2 if is_half else 4)


def plan_of(config: Config) -> list[str]:
    """Return the stages of a pipeline or a comparison as lines, and their time; nothing for one stage."""
    if isinstance(config, PipelineConfig):
        planned = list(forecast(config))
    elif isinstance(config, CompareConfig):
        planned = list(_compared(config))
    else:
        return []
    known = [stage.minutes for stage in planned if stage.minutes is not None]
    total = f"in all about {sum(known):.0f} min on an H200 for the stages with a known time"
    return [*map(str, planned), total]


def _compared(config: CompareConfig) -> Iterator[Planned]:
    """Yield the stages of a comparison: those of all arms together are one."""
    train, policy = config.train, config.train.policy
    weights = weights_in(policy)
    size = _size(weights, policy)
    if needs_cold_start(train):
        yield _taught(train, weights, size)
    arms = f"{len(config.methods)} methods with {len(config.seeds)} seeds, each: "
    for stage in (_trained(train, weights, size), _asked(ARM_CARD, config.evaluate, policy, size)):
        minutes = None if stage.minutes is None else len(config.arms) * stage.minutes
        yield stage._replace(work=arms + stage.work, minutes=minutes)


def forecast(config: PipelineConfig) -> Iterator[Planned]:
    """Yield the stages of a pipeline in order. A stage that would not run is named with the reason."""
    train, policy = config.train, config.train.policy
    weights = weights_in(policy)
    size = _size(weights, policy)
    ingest = config.ingest
    rows = {
        "generator": ingest.generator_rows,
        "modules": ingest.modules_rows,
        "graphs": ingest.graphs_rows,
    }
    sources = ", ".join(f"{name} {rows.get(name, '')}".strip() for name in config.ingest.sources)
    yield Planned("ingest", f"problems of {sources}", "CPU", None)
    yield Planned("index", f"their kernels by {config.index.embedder}", config.index.device.upper(), None)
    if needs_cold_start(train):
        if is_untaught(policy):
            yield _asked(UNTAUGHT_CARD, config.evaluate.of_untaught, policy, size)
        yield _taught(train, weights, size)
    else:
        reason = "cold_start: none" if is_untaught(policy) else f"{policy.model} is taught already"
        yield Planned("cold-start", f"left out ({reason})", "nowhere", 0.0)
    yield _asked(BEFORE, config.evaluate, policy, size)
    for number in range(1, config.rounds.number + 1):
        yield _asked(round_folder(number, "answers"), config.round_asked(number, None), policy, size)
        yield _taught(config.round_taught(policy.model, ""), weights, size, round_folder(number))
        if config.has_rl or number < config.rounds.number:
            yield _asked(round_folder(number, "evaluate"), config.evaluate, policy, size)
    if config.has_rl:
        yield _trained(train, weights, size)
    yield _asked(AFTER, config.evaluate, policy, size)
    yield _asked(WINNERS, config.best_of_n, policy, size)


def _size(weights: float | None, policy: PolicyConfig) -> float | None:
    """Return the size of a model in terms of the one that the rates are of; None where no rate is known."""
    return None if weights is None or policy.device == "cpu" else weights / MEASURED_WEIGHTS


def _trained(train: TrainConfig, weights: float | None, size: float | None) -> Planned:
    policy = train.policy
    answers = train.steps * train.problems_per_step * train.group_size * train.rollout.turns
    answers = min(answers, train.candidates or answers)
    minutes = _minutes(answers, size, train.gym.device)
    if minutes is not None and train.minutes is not None:
        minutes = min(minutes, train.minutes)
    stages = " → ".join(stage.name for stage in train.curriculum.stages)
    where = f"policy on {policy.device.upper()}, judge on {train.gym.device.upper()}"
    work = f"{train.steps} steps, at most {answers:,} answers, {stages}"
    return Planned("train", work, where, minutes, _gigabytes(weights, policy))


def _taught(
    train: TrainConfig, weights: float | None, size: float | None, stage: str = "cold-start"
) -> Planned:
    policy, cold = train.as_taught.policy, train.cold_start
    part = "all weights" if policy.lora_rank is None else f"adapters of rank {policy.lora_rank}"
    minutes = None if size is None else size * cold.steps * cold.batch_tokens / TAUGHT_TOKENS_S / 60
    if minutes is not None and cold.minutes is not None:
        minutes = min(minutes, cold.minutes)
    taught = "chats" if cold.data else f"{cold.conversations:,} conversations"
    examples = f"{cold.steps} updates of {cold.batch_tokens:,} tokens on {taught}"
    where = policy.device.upper()
    return Planned(stage, f"{examples}, {part}", where, minutes, _gigabytes(weights, policy))


def _asked(
    stage: str, config: EvaluateConfig | BestOfNConfig, policy: PolicyConfig, size: float | None
) -> Planned:
    if isinstance(config, EvaluateConfig):
        groups, samples = [config.problems, *config.groups.values()], config.samples_per_problem
        turns = config.rollout.turns
    else:
        groups, samples = [config.problems], config.n
        turns = config.rollout.turns if config.mode == "parallel" else 1
    counts = [_count(group) for group in groups]
    known = [count for count in counts if count is not None]
    answers = sum(known) * samples * turns
    named = ", ".join(
        f"{group.suite} {'all' if count is None else count}"
        for group, count in zip(groups, counts, strict=True)
    )
    where = f"policy on {policy.device.upper()}, judge on {config.gym.device.upper()}"
    minutes = _minutes(answers, size, config.gym.device)
    return Planned(stage, f"{samples} answers a problem of {named}", where, minutes)


def _count(problems: ProblemsConfig) -> int | None:
    if problems.limit is not None:
        return problems.limit
    return WITHOUT_LIMIT if problems.suite in ("generated", "modules") else None


def _minutes(answers: int, size: float | None, judge: str) -> float | None:
    if size is None or judge == "cpu":
        return None
    return answers * (size / WRITTEN_ANSWERS_S + 1 / JUDGED_ANSWERS_S) / 60


def _gigabytes(weights: float | None, policy: PolicyConfig) -> float | None:
    if weights is None:
        return None
    return weights * (TRAINED_BYTES if policy.lora_rank is None else FROZEN_BYTES) / 1e9
