"""Summary of a pipeline's run in ten lines: training, gains by group of problems, winners, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any

from kernel_core.evaluation.best_of_n import load_selection
from kernel_core.evaluation.comparison import compare
from kernel_core.evaluation.groups import JudgedAnswer, answers_of, difference_rows, figure_rows, pairs_of
from kernel_core.evaluation.kinds import baseline_rows
from kernel_core.evaluation.promotion import decide
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.evaluation.statistics import in_per_cent
from kernel_core.runs.naming import AFTER, BEFORE, UNTAUGHT_CARD, WINNERS, round_folder
from kernel_core.runs.run_folder import Run

Row = dict[str, Any]
MOST_LINES = 10


def arms_of(run: Run, groups: Sequence[str]) -> dict[str, list[JudgedAnswer]]:
    """Return the answers of each evaluation of a pipeline, those to further groups of problems included."""
    rounds = {round_folder(number, "evaluate"): f"round {number}" for number in rounds_of(run)}
    learned = learned_by(run)
    names = {UNTAUGHT_CARD: "untaught", BEFORE: f"before {learned}", **rounds, AFTER: f"after {learned}"}
    by_arm = {}
    for folder, arm in names.items():
        stores = [run.store.child(name) for name in (folder, *(f"{folder}-{group}" for group in groups))]
        cards = [load_scorecard(store) for store in stores if store.sealed()]
        if cards:
            by_arm[arm] = [answer for card in cards for answer in answers_of(card)]
    return by_arm


def rounds_of(run: Run) -> list[int]:
    """Return the numbers of the rounds of expert iteration that the run has begun to teach."""
    return list(takewhile(lambda number: run.stage(round_folder(number)) is not None, count(1)))


def learned_by(run: Run) -> str:
    """Return the name of what the pipeline does between its two scorecards."""
    rounds, has_rl = bool(rounds_of(run)), run.stage("train") is not None
    return " and ".join((*(["rounds"] if rounds else []), *(["RL"] if has_rl or not rounds else [])))


def group_tables(arms: Mapping[str, Sequence[JudgedAnswer]]) -> dict[str, list[Row]]:
    """Return the figures of each group and evaluation, and the paired differences to the first."""
    return {
        "By group of problems": figure_rows(arms),
        "Differences over the same problems": difference_rows(arms, pairs_of(arms)),
    }


def verdict_lines(run: Run, arms: Mapping[str, Sequence[JudgedAnswer]]) -> list[str]:
    """Return at most `MOST_LINES` lines; the first says whether the policy became better."""
    change = compare(load_scorecard(run.store.child(BEFORE)), load_scorecard(run.store.child(AFTER)))
    decision = decide(change)
    effect = "made it clearly better" if decision.passes else "did not make it clearly better"
    learned = learned_by(run)
    better = f"{learned[0].upper()}{learned[1:]} {effect}"
    ends = [_fast(run), _winners(run), _cost(run)]
    lines = [f"**{better}:** {decision.reason}.", *_learned(run)]
    by_group: dict[str, list[str]] = {}
    for row in figure_rows(arms):
        by_group.setdefault(row["group"], []).append(f"{row['arm']} {row['pass@1']}")
    lines += [f"Correct on {group}: {', '.join(figures)}." for group, figures in by_group.items()]
    return [*lines[: MOST_LINES - len(ends)], *ends]


def _learned(run: Run) -> list[str]:
    lines = []
    taught = run.store.child("cold_start")
    if taught.exists("report.json"):
        report = taught.read_json("report.json")
        lines.append(
            f"Taught: {report['steps']} updates on {report['num_conversations']:,} conversations; "
            f"held-back loss {report['loss']:.3f} nats a token."
        )
    steps = [line for line in run.store.lines("metrics.jsonl") if line.get("step")]
    if steps:
        judged = steps[-1].get("progress/num_judged")
        answers = f" on {judged:,} judged answers" if isinstance(judged, int) else ""
        lines.append(f"RL: {steps[-1]['step']} steps{answers}, the last in stage {steps[-1].get('stage')}.")
    return lines


def _fast(run: Run) -> str:
    """Return the share of the last answers that beat the fair baseline, by level of KernelBench."""
    card = load_scorecard(run.store.child(AFTER))
    levels = [row for row in baseline_rows(card.problems) if row["faster than"] == "fair"]
    if levels:
        shares = ", ".join(f"{row['group']} {row['fast_1']}" for row in levels)
        return f"Faster than the fair baseline: {shares}."
    speed = card.last.headline
    return f"Faster than eager ({speed.kind}): {in_per_cent(speed.fast_1)}."


def _winners(run: Run) -> str:
    selection = load_selection(run.store.child(WINNERS))
    speedups = [
        result.winner.speedup for result in selection.winners if result.winner and result.winner.speedup
    ]
    fastest = f"; the fastest {max(speedups):.2f}× ({selection.speed_kind})" if speedups else ""
    count = f"{len(selection.winners)} of {len(selection.problems)} problems"
    return f"Best of {selection.n}: winners for {count}{fastest}."


_COUNTED_S = 3.0
"""Seconds from which a stage is named in the cost."""


def _cost(run: Run) -> str:
    seconds = {record.stage: record.seconds for record in run.stages() if record.seconds is not None}
    stages = ", ".join(f"{stage} {value / 60:.1f}" for stage, value in seconds.items() if value >= _COUNTED_S)
    on_gpu = sum(seconds.get(record.stage, 0.0) for record in run.stages() if _uses_gpu(record.config))
    return f"Cost: {sum(seconds.values()) / 60:.1f} minutes, {on_gpu / 60:.1f} of them on a GPU ({stages})."


def _uses_gpu(settings: Mapping[str, Any]) -> bool:
    return any(settings.get(part, {}).get("device") == "cuda" for part in ("policy", "gym"))
