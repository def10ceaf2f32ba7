"""The files of an evaluation: one row a turn, a problem, a family, and KernelBench's `eval_results.json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kernel_core.dialogue.turns import TrajectoryGroup, Turn
from kernel_core.evaluation.metrics import (
    SIDE_BY_SIDE,
    Scorecard,
    SpeedKind,
    best_turn,
    outcome_of,
    outcomes_in,
    own_share_of,
    speedups_of,
)
from kernel_core.evaluation.statistics import Estimate, geometric_mean
from kernel_core.evaluation.work import FUSED_TAIL_BELOW
from kernel_core.parquet_rows import schema_of
from kernel_core.records import Candidate, Evaluation, Problem

Row = dict[str, Any]

TURN_SCHEMA = schema_of(
    (pa.string(), "problem_id family"),
    (pa.int64(), "level sample turn"),
    (pa.bool_(), "is_last is_best"),
    (pa.string(), "verdict"),
    (pa.int64(), "trials_passed trials"),
    (pa.float64(), "speedup runtime_ms reference_ms"),
    (pa.string(), "baseline"),
    (pa.float64(), " ".join(f"speedup_over_{name}" for name in SIDE_BY_SIDE)),
    (pa.string(), "product_precision"),
    (pa.list_(pa.string()), "tolerances_passed"),
    (pa.float64(), "predicted_speedup predicted_ms reference_predicted_ms"),
    (pa.string(), "predicted_gpu"),
    (pa.float64(), "own_kernel_share"),
    (pa.int64(), "num_tokens"),
    (pa.string(), "finish_reason"),
    (pa.bool_(), "repeats_earlier"),
    (pa.list_(pa.string()), "exemplar_ids"),
    (pa.string(), "candidate_sha256 code answer"),
    (pa.list_(pa.string()), "findings"),
    (pa.string(), "feedback policy_version gym_version device"),
    (pa.float64(), "seconds"),
)
"""Columns of `evaluations.parquet`. `answer` is the text of an answer without `code`.

`seconds` is the judge's wall clock; other CPU columns repeat exactly.
"""

PROBLEM_SCHEMA = schema_of(
    (pa.string(), "problem_id family"),
    (pa.int64(), "level samples compiled correct correct_best_turn"),
    (pa.string(), "speed_kind"),
    (pa.int64(), "faster_than_baseline"),
    (pa.float64(), "geometric_mean_speedup best_speedup"),
)

FAMILY_SCHEMA = schema_of(
    (pa.string(), "family"),
    (pa.int64(), "problems samples"),
    (pa.float64(), "format_rate compile_rate correct_rate correct_rate_low correct_rate_high"),
    (pa.string(), "speed_kind"),
    (pa.float64(), "fast_1 geometric_mean_speedup"),
)


def turn_rows(problems: Sequence[Problem], groups: Sequence[TrajectoryGroup], kind: SpeedKind) -> list[Row]:
    """One row a turn, in order of problem, sample and turn."""
    rows: list[Row] = []
    for problem, group in zip(problems, groups, strict=True):
        for sample, trajectory in enumerate(group.trajectories):
            outcomes = [outcome_of(turn.evaluation, turn.index) for turn in trajectory.turns]
            best = best_turn(outcomes, kind).turn
            rows += [
                {
                    "problem_id": problem.id,
                    "family": problem.family,
                    "level": problem.level,
                    "sample": sample,
                    "is_last": turn is trajectory.turns[-1],
                    "is_best": turn.index == best,
                    **_turn_row(turn),
                    **_evaluation_row(turn.evaluation),
                }
                for turn in trajectory.turns
            ]
    return rows


def headline_rows(card: Scorecard) -> list[Row]:
    """One row a figure: last turns with their interval, and best turns (an oracle) beside them."""

    def row(metric: str, last: Estimate | None, best: Estimate | None) -> Row:
        return {
            "metric": metric,
            "last turn": last and last.value,
            "low": last and last.low,
            "high": last and last.high,
            "best turn (oracle)": best and best.value,
        }

    last, best = card.last, card.best
    rows = [
        row("format_rate", last.format_rate, best.format_rate),
        row("compile_rate", last.compile_rate, best.compile_rate),
        row("correct_rate", last.correct_rate, best.correct_rate),
        *(row(f"pass@{k}", last.pass_at_k[k], best.pass_at_k[k]) for k in card.k),
    ]
    for last_speed, best_speed in zip(last.speeds, best.speeds, strict=True):
        kind: str = last_speed.kind
        if kind == "measured":
            kind = f"measured, over {last_speed.baseline or card.conditions.baseline}"
        rows += [
            row(f"fast_{point.threshold:g} ({kind})", point.share, other_point.share)
            for point, other_point in zip(last_speed.fast_p, best_speed.fast_p, strict=True)
        ]
        name = f"geometric-mean speed-up ({kind})"
        rows.append(row(name, last_speed.geometric_mean, best_speed.geometric_mean))
    return rows


def work_rows(card: Scorecard) -> list[Row]:
    """Counts over last turns: tolerances, precision of products, share of own work, problems without figures.

    Every count has its denominator beside it.
    """
    work = card.last.work
    answers, correct = f"of {work.num_answers} answers", f"of {work.num_correct} correct answers"
    rows = {
        f"outputs within the tolerance `{name}`": f"{count} {answers}"
        for name, count in work.tolerances.items()
    }
    if work.tolerances and work.tolerances_unknown:
        rows["tolerance not known"] = f"{work.tolerances_unknown} {correct}"
    rows |= {
        f"precision of products: {name}": f"{count} {correct}" for name, count in work.precisions.items()
    }
    if work.own_share is not None:
        shares = " / ".join(f"{100 * share:.0f} %" for share in work.own_share)
        rows["share of the time in own kernels, quartiles"] = shares
        name = f"fused tails: under {100 * FUSED_TAIL_BELOW:.0f} % in own kernels"
        rows[name] = f"{work.fused_tails} {correct}"
    if work.own_share_unknown:
        rows["own share not known"] = f"{work.own_share_unknown} {correct}"
    if work.without_compile and card.conditions.baseline == "fair":
        name = "`torch.compile` was not timed, so `fair` is eager alone"
        rows[name] = f"{work.without_compile} {correct}"
    if work.not_exercised:
        name = "loops or grids that turn more at the problem's own sizes"
        rows[name] = f"{work.not_exercised} {correct}"
    rows |= {f"not a problem here: {entry.problem_id}": entry.reason for entry in card.not_judged}
    if card.conditions.unanswered:
        names = ", ".join(card.conditions.unanswered)
        rows["without the asked number of answers, in no figure"] = names
    return [{"what": what, "value": value} for what, value in rows.items()]


def measured_in_words(card: Scorecard) -> str:
    """The speed-ups, their baseline and the spread that intervals stand for, in a sentence."""
    again = f"; answers of {card.conditions.answers} judged again" if card.conditions.answers else ""
    missing = f"; {len(card.not_judged)} not a problem here" if card.not_judged else ""
    return (
        f"{card.last.num_problems} problems, {card.last.num_samples} answers{missing}; "
        f"gym {card.conditions.gym_version}; "
        f"95 % intervals over problems, for one policy and one set of draws{again}"
    )


def problem_rows(card: Scorecard) -> list[Row]:
    """One row a problem, of last turns unless named otherwise."""
    rows = []
    for problem in card.problems:
        last = outcomes_in(problem, "last", card.headline)
        speedups = speedups_of([last], card.headline)[0]
        mean = geometric_mean([speedups])
        rows.append(
            {
                "problem_id": problem.problem_id,
                "family": problem.family,
                "level": problem.level,
                "samples": len(last),
                "compiled": sum(outcome.compiled for outcome in last),
                "correct": sum(outcome.correct for outcome in last),
                "correct_best_turn": sum(o.correct for o in outcomes_in(problem, "best", card.headline)),
                "speed_kind": card.headline,
                "faster_than_baseline": sum(o.faster_than(1.0, card.headline) for o in last),
                "geometric_mean_speedup": mean.value if mean else None,
                "best_speedup": max(speedups, default=None),
            }
        )
    return rows


def family_rows(card: Scorecard) -> list[Row]:
    """One row a family, of last turns."""
    return [
        {
            "family": family,
            "problems": score.num_problems,
            "samples": score.num_samples,
            "format_rate": score.format_rate.value,
            "compile_rate": score.compile_rate.value,
            "correct_rate": score.correct_rate.value,
            "correct_rate_low": score.correct_rate.low,
            "correct_rate_high": score.correct_rate.high,
            "speed_kind": card.headline,
            "fast_1": score.headline.fast_1.value,
            "geometric_mean_speedup": score.headline.geometric_mean and score.headline.geometric_mean.value,
        }
        for family, score in card.by_family.items()
    ]


def kernelbench_results(
    problems: Sequence[Problem], groups: Sequence[TrajectoryGroup]
) -> dict[str, list[Row]]:
    """`{problem id: samples}` with KernelBench's keys and values, and our own keys beside them.

    A sample is a conversation's last turn. KernelBench's ids are numbers within a level; ours are unique.
    `runtime` is the median in ms (theirs is a mean) and, as theirs, -1 when there is no measurement.
    """
    return {
        problem.id: [
            _kernelbench_sample(sample, trajectory.turns[-1])
            for sample, trajectory in enumerate(group.trajectories)
        ]
        for problem, group in zip(problems, groups, strict=True)
    }


def _kernelbench_sample(sample: int, turn: Turn) -> Row:
    evaluation = turn.evaluation
    outcome = outcome_of(evaluation, turn.index)
    timing = evaluation.timing
    stats = timing and {
        "median": timing.median_ms,
        "ci_low": timing.ci_low_ms,
        "ci_high": timing.ci_high_ms,
        "num_trials": timing.num_calls,
        "device": evaluation.device,
    }
    return {
        "sample_id": sample,
        "compiled": outcome.compiled,
        "correctness": outcome.correct,
        "metadata": {
            "device": evaluation.device,
            "correctness_trials": f"({evaluation.trials_passed} / {evaluation.trials})",
            "findings": [finding.model_dump() for finding in evaluation.findings],
        },
        "runtime": timing.median_ms if timing else -1.0,
        "runtime_stats": stats or {},
        "verdict": str(evaluation.verdict),
        "turn": turn.index,
        "speedup": evaluation.speedup,
        "predicted_speedup": evaluation.predicted_speedup,
        "candidate_sha256": evaluation.candidate_sha,
        "gym_version": evaluation.gym_version,
        "policy_version": turn.completion.policy_version,
    }


def _turn_row(turn: Turn) -> Row:
    return {
        "turn": turn.index,
        "num_tokens": turn.completion.num_tokens,
        "finish_reason": turn.completion.finish_reason,
        "repeats_earlier": turn.repeats_earlier,
        "exemplar_ids": list(turn.exemplar_ids),
        "code": turn.candidate.source if isinstance(turn.candidate, Candidate) else None,
        "answer": None if isinstance(turn.candidate, Candidate) else turn.completion.text,
        "policy_version": turn.completion.policy_version,
    }


def _evaluation_row(evaluation: Evaluation) -> Row:
    traffic, reference = evaluation.traffic, evaluation.reference_traffic
    return {
        "verdict": str(evaluation.verdict),
        "trials_passed": evaluation.trials_passed,
        "trials": evaluation.trials,
        "speedup": evaluation.speedup,
        "runtime_ms": evaluation.timing.median_ms if evaluation.timing else None,
        "reference_ms": evaluation.reference_timing.median_ms if evaluation.reference_timing else None,
        "baseline": evaluation.baseline,
        **{f"speedup_over_{name}": evaluation.speedup_over(name) for name in SIDE_BY_SIDE},
        "product_precision": evaluation.product_precision,
        "tolerances_passed": list(evaluation.tolerances_passed),
        "predicted_speedup": evaluation.predicted_speedup,
        "predicted_ms": traffic.predicted_ms if traffic else None,
        "reference_predicted_ms": reference.predicted_ms if reference else None,
        "predicted_gpu": traffic.gpu if traffic else None,
        "own_kernel_share": own_share_of(evaluation),
        "candidate_sha256": evaluation.candidate_sha,
        "findings": [f"{finding.rule}: {finding.detail}" for finding in evaluation.findings],
        "feedback": evaluation.feedback,
        "gym_version": evaluation.gym_version,
        "device": evaluation.device,
        "seconds": evaluation.seconds,
    }
