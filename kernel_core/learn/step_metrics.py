"""Metrics of a step for `metrics.jsonl` and its report: measured values only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kernel_core.config import TrainConfig
from kernel_core.gym.contract.requests import Compared
from kernel_core.learn.alarms import Alarm
from kernel_core.learn.credit import varies
from kernel_core.learn.metrics import Metrics
from kernel_core.learn.step_batch import Experience
from kernel_core.learn.update_report import UpdateReport
from kernel_core.policy.publish import Publication
from kernel_core.records import Record
from kernel_core.reward.curriculum import Probe, StageEvent


class StepReport(Record):
    """Report of one step, for a person; `metrics.jsonl` has all numbers of it."""

    step: int
    steps: int
    stage: str
    event: StageEvent | None
    """Change of stage after this step, if there was one."""
    alarms: tuple[Alarm, ...] = ()
    """Early warnings that begin to ring with this step."""
    reward_mean: float
    correct_rate: float
    fast_1_rate: float | None
    """None where no kernel was timed."""
    speedups: str
    """Their kind: `measured`, or `predicted for` a GPU."""
    update: UpdateReport
    compared: Compared = Compared()
    """Answers that were judged fast and in full."""

    def lines(self) -> list[str]:
        """Return the step as lines of a log."""
        fast = "not timed" if self.fast_1_rate is None else f"{100 * self.fast_1_rate:.0f} %"
        lines = [
            f"step {self.step} of {self.steps}, stage {self.stage}: reward {self.reward_mean:.3f}, "
            f"correct {100 * self.correct_rate:.0f} %, beats the reference {fast} ({self.speedups})"
        ]
        if number := self.compared.num_compared:
            differing = self.compared.num_differing
            lines.append(f"{number} answers were judged fast and in full: {differing} other verdicts")
        return lines


class Finished(NamedTuple):
    """Results of one step before they are written."""

    step: int
    stage: str
    gathered: Experience
    measured: Metrics
    update: UpdateReport
    publication: Publication
    probe: Probe | None
    event: StageEvent | None
    num_judged: int
    """Answers judged since the run began."""
    lr: float


def words_of(done: Finished, speedups: str) -> dict[str, str]:
    """Return the text fields of a step's row."""
    words = {"stage": done.stage, "speedups": speedups}
    if done.event is not None:
        words["event"] = f"{done.event.kind} to {done.event.to_stage}: {done.event.reason}"
    return words


def numbers_of(
    done: Finished, config: TrainConfig, stage_index: int, seconds: Mapping[str, float], saving_s: float
) -> Metrics:
    """Return the numbers of a step's row. A method that learns nothing has no `update/`."""
    num_sampled = done.gathered.rollouts.num_sampled_tokens
    updated = {} if config.method == "frozen" else done.update.model_dump(exclude_none=True)
    return {
        "progress/done_frac": done.step / config.steps,
        "progress/num_judged": done.num_judged,
        "optim/lr": done.lr,
        "curriculum/stage_index": stage_index,
        **done.measured,
        **_counts(done.gathered),
        "publish/gap": done.publication.gap,
        "publish/moved": done.publication.moved,
        "batch/num_sampled_tokens": num_sampled,
        **{f"update/{name}": value for name, value in updated.items()},
        **_tokens_per_s(num_sampled, done.update.num_tokens, seconds),
        **(probe_metrics(done.probe) if done.probe is not None else {}),
        **{f"seconds/{name}": round(value, 3) for name, value in seconds.items()},
        "seconds/checkpoint": round(saving_s, 3),
    }


def report_of(done: Finished, config: TrainConfig, speedups: str, alarms: list[Alarm]) -> StepReport:
    """Return the step as a record for a person."""
    return StepReport(
        step=done.step,
        steps=config.steps,
        stage=done.stage,
        event=done.event,
        alarms=tuple(alarms),
        reward_mean=done.measured["reward/mean"],
        correct_rate=done.measured["kernel/correct_rate"],
        fast_1_rate=done.measured.get("kernel/fast_1_rate"),
        speedups=speedups,
        update=done.update,
        compared=done.gathered.rollouts.compared,
    )


def varied(gathered: Experience) -> dict[str, list[bool]]:
    """Return by problem family which groups had something to teach; a lone conversation teaches nothing."""
    by_family: dict[str, list[bool]] = defaultdict(list)
    for problem, group, graded in zip(
        gathered.problems, gathered.rollouts.groups, gathered.graded, strict=True
    ):
        if len(group.trajectories) > 1:
            by_family[problem.family].append(varies(graded))
    return dict(by_family)


def probe_metrics(probe: Probe) -> Metrics:
    """Return a probe's rates as fields of a row."""
    return {f"probe/{name}": value for name, value in probe.model_dump(exclude={"step"}).items()}


def _counts(gathered: Experience) -> Metrics:
    """Count judged and redrawn answers, and losses to faults of ours: never a reward, always a number.

    The entropy is that of all answers by their sampler, in nats a token: E[−log p], also where no row trains.
    """
    compared = gathered.rollouts.compared.model_dump()
    logprobs = [s.logprobs for s in gathered.rollouts.samples.values() if s.logprobs is not None]
    tokens = np.concatenate(logprobs) if logprobs else np.zeros(0)
    return {
        **({"batch/entropy": -float(tokens.mean(dtype=np.float64))} if len(tokens) else {}),
        "batch/num_judged": gathered.rollouts.num_judged,
        "batch/num_resampled_groups": gathered.num_resampled,
        "faults/num_left_out": gathered.rollouts.num_left_out,
        "faults/num_retried": gathered.rollouts.num_retried,
        "seconds/judging": round(gathered.rollouts.seconds_judging, 3),
        **({f"fast/{name}": count for name, count in compared.items()} if compared["num_compared"] else {}),
    }


def _tokens_per_s(num_sampled: int, num_trained: int, seconds: Mapping[str, float]) -> Metrics:
    """Tokens written in a second of sampling, and learned from in one of the update, if there were any."""
    counts = {
        "batch/sampled_tokens_per_s": (num_sampled, seconds.get("sample", 0.0)),
        "update/tokens_per_s": (num_trained, seconds.get("update", 0.0)),
    }
    return {name: round(count / took, 1) for name, (count, took) in counts.items() if count and took}
