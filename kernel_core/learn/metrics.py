"""Metrics of a step, by their names in `metrics.jsonl` and tensorboard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_core.dialogue.turns import TrajectoryGroup, Turn
from kernel_core.evaluation.metrics import SpeedKind, outcome_of
from kernel_core.learn.alarms import is_junk
from kernel_core.learn.credit import GradedTurn, truncated, varies
from kernel_core.records import Verdict
from kernel_core.reward.curriculum import Probe
from kernel_core.reward.terms import known_own_share

Metrics = dict[str, float]

_TERMS = ("format", "compile", "correct", "speed", "own_share", "thinking", "length", "penalty")


def measure(graded: Sequence[Sequence[GradedTurn]], kind: SpeedKind, is_timed: bool = True) -> Metrics:
    """Rewards, verdicts, rates and speed of a step's turns, overall and by turn index.

    Where nothing was timed, no rate says that nothing was fast.
    """
    flat = [graded_turn for group in graded for graded_turn in group]
    metrics = _rewards(flat) | kernel_rates([graded_turn.turn for graded_turn in flat], kind)
    metrics["batch/num_groups"] = len(graded)
    metrics["batch/num_constant_groups"] = sum(bool(group) and not varies(group) for group in graded)
    metrics["batch/pass_at_group"] = _share(
        [any(member.turn.evaluation.correct for member in group) for group in graded if group]
    )
    metrics["batch/num_turns"] = len(flat)
    metrics["advantage/std"] = float(np.std([graded_turn.advantage for graded_turn in flat]))
    metrics["advantage/max"] = max(abs(graded_turn.advantage) for graded_turn in flat)
    for index in sorted({graded_turn.turn.index for graded_turn in flat}):
        these = [graded_turn for graded_turn in flat if graded_turn.turn.index == index]
        rates = kernel_rates([graded_turn.turn for graded_turn in these], kind)
        metrics[f"multiturn/turn_{index}/reward_mean"] = float(
            np.mean([graded_turn.terms.total for graded_turn in these])
        )
        for name in ("format_rate", "compile_rate", "correct_rate", "fast_1_rate"):
            metrics[f"multiturn/turn_{index}/{name}"] = rates[f"kernel/{name}"]
        for verdict in Verdict:
            metrics[f"multiturn/turn_{index}/verdict/{verdict}"] = rates[f"verdict/{verdict}"]
    metrics["multiturn/success_rate"] = _success_rate(graded)
    metrics["multiturn/repeat_rate"] = _share([graded_turn.turn.repeats_earlier for graded_turn in flat])
    return {name: value for name, value in metrics.items() if is_timed or "fast_1" not in name}


def kernel_rates(turns: Sequence[Turn], kind: SpeedKind) -> Metrics:
    """Shares of verdicts, and the speed of the correct kernels."""
    outcomes = [outcome_of(turn.evaluation, turn.index) for turn in turns]
    metrics = {
        "kernel/format_rate": _share([outcome.formatted for outcome in outcomes]),
        "kernel/compile_rate": _share([outcome.compiled for outcome in outcomes]),
        "kernel/correct_rate": _share([outcome.correct for outcome in outcomes]),
        "kernel/hack_rate": _share([outcome.verdict is Verdict.HACKED for outcome in outcomes]),
        "kernel/fast_1_rate": _share([outcome.faster_than(1.0, kind) for outcome in outcomes]),
        "kernel/truncated_rate": _share([truncated(turn) for turn in turns]),
        "kernel/junk_rate": _share([is_junk(turn.completion.text) for turn in turns]),
        "kernel/tokens_mean": float(np.mean([turn.completion.num_tokens for turn in turns])),
    }
    speedups = [speedup for outcome in outcomes if (speedup := outcome.speedup(kind)) is not None]
    if speedups:
        metrics["kernel/speedup_geometric_mean"] = float(np.exp(np.mean(np.log(speedups))))
    shares = [known_own_share(turn.evaluation) for turn in turns if turn.evaluation.correct]
    if known := [share for share in shares if share is not None]:
        metrics["kernel/own_share_mean"] = float(np.mean(known))
    for verdict in Verdict:
        metrics[f"verdict/{verdict}"] = _share([outcome.verdict is verdict for outcome in outcomes])
    return metrics


def probe_of(groups: Sequence[TrajectoryGroup], step: int, kind: SpeedKind, num_left_out: int) -> Probe:
    """Return the curriculum's measurements: rates over all answers, one per validation problem."""
    turns = [turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns]
    rates = kernel_rates(turns, kind)
    return Probe(
        step=step,
        format_rate=rates["kernel/format_rate"],
        compile_rate=rates["kernel/compile_rate"],
        correct_rate=rates["kernel/correct_rate"],
        fast_1=rates["kernel/fast_1_rate"],
        num_left_out=num_left_out,
    )


def _rewards(flat: Sequence[GradedTurn]) -> Metrics:
    """Return the kernels' worth, in all and term by term, and the rewards paid for them."""
    totals = [graded_turn.terms.total for graded_turn in flat]
    metrics = {
        "reward/mean": float(np.mean(totals)),
        "reward/std": float(np.std(totals)),
        "reward/min": min(totals),
        "reward/max": max(totals),
        "reward/paid_mean": float(np.mean([graded_turn.paid for graded_turn in flat])),
    }
    for name in _TERMS:
        metrics[f"reward/{name}"] = float(np.mean([getattr(graded_turn.terms, name) for graded_turn in flat]))
    return metrics


def _success_rate(graded: Sequence[Sequence[GradedTurn]]) -> float:
    """Return the share of conversations with a correct kernel in any turn."""
    best: dict[tuple[str, int], bool] = {}
    for graded_turn in (graded_turn for group in graded for graded_turn in group):
        key = graded_turn.turn.problem_id, graded_turn.turn.trajectory
        best[key] = best.get(key, False) or graded_turn.turn.evaluation.correct
    return _share(list(best.values()))


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
