"""The best kernels that a training wrote for problems of files, verified as those of best of N."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_core.config import TrainConfig
from kernel_core.dialogue.rollout import seed_of
from kernel_core.dialogue.turns import Completion, Trajectory, TrajectoryGroup, Turn
from kernel_core.evaluation.best_of_n import Selection, seal_selection
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.evaluation.winners import Selected, select
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.gym.judge.audited_problems import load_audited
from kernel_core.parquet_rows import unpacked
from kernel_core.progress import Progress, silent
from kernel_core.records import Candidate, Evaluation, Problem, Verdict
from kernel_core.store import Store

TRIED = 8
"""Distinct kernels of a problem that are judged again: the fastest ones of the training."""
_COLUMNS = [
    *("problem_id", "sample", "turn", "verdict", "speedup", "predicted_speedup", "code"),
    *("finish_reason", "policy_version"),
]
_Row = Mapping[str, Any]


def best_of_training(
    config: TrainConfig,
    gym: Gym,
    training: Store,
    store: Store,
    progress: Progress = silent,
    memory: Store | None = None,
) -> Selection:
    """Judge again the fastest kernels in `evaluations/` of a training, and seal the best of each problem."""
    problems = load_audited(config.problems, memory).problems
    by_problem: dict[str, list[_Row]] = {problem.id: [] for problem in problems}
    newest_version = ""
    for name in sorted(training.names("evaluations")):
        for row in unpacked(training.read(f"evaluations/{name}"), _COLUMNS):
            by_problem.get(row["problem_id"], []).append(row)
            newest_version = row["policy_version"]
    kind: SpeedKind = "measured" if config.gym.device == "cuda" else "predicted"
    selected = []
    for done, problem in enumerate(problems, start=1):
        selected.append(_best_of(problem, by_problem[problem.id], gym, kind, config.seed))
        progress("winners", done=done, total=len(problems))
    selection = Selection(
        policy_version=newest_version,
        gym_version=gym.version,
        device=config.gym.device,
        mode="training",
        n=max(map(len, by_problem.values()), default=0),
        speed_kind=kind,
        problems=tuple(selected),
    )
    seal_selection(selection, {}, {}, store)
    return selection


def _best_of(problem: Problem, rows: Sequence[_Row], gym: Gym, kind: SpeedKind, seed: int) -> Selected:
    column = "speedup" if kind == "measured" else "predicted_speedup"
    correct = {row["code"]: row for row in rows if row["verdict"] == Verdict.CORRECT.value}
    # A stage without a speed reward may have left a kernel untimed; the judge times it now.
    fastest = sorted(correct.values(), key=lambda row: (-(row[column] or 0.0), len(row["code"])))[:TRIED]
    selected = select(problem, _judged(problem, fastest, gym, seed), gym, kind, seed)
    counts = Counter(row["verdict"] for row in rows)
    all_answers = {
        "num_candidates": len(rows),
        "num_distinct_correct": len(correct),
        "verdicts": {verdict: counts[verdict.value] for verdict in Verdict},
    }
    return selected.model_copy(update=all_answers)


def _judged(problem: Problem, rows: Sequence[_Row], gym: Gym, seed: int) -> TrajectoryGroup:
    """Return the kernels of rows as conversations of one turn, with full evaluations by today's judge."""
    candidates = [Candidate.from_source(row["code"]) for row in rows]
    drawn = seed_of("best of training", seed, problem.id)
    requests = [JudgeRequest(problem=problem, candidate=candidate, seed=drawn) for candidate in candidates]
    trajectories = []
    for row, candidate, evaluation in zip(rows, candidates, gym.judge(requests), strict=True):
        if not isinstance(evaluation, Evaluation):
            return TrajectoryGroup(problem_id=problem.id, trajectories=(), not_judged=evaluation.reason)
        completion = Completion(
            text="", finish_reason=row["finish_reason"], policy_version=row["policy_version"]
        )
        turn = Turn(
            problem_id=problem.id,
            trajectory=row["sample"],
            index=row["turn"],
            messages=(),
            completion=completion,
            candidate=candidate,
            evaluation=evaluation,
        )
        trajectories.append(Trajectory(problem_id=problem.id, turns=(turn,)))
    return TrajectoryGroup(problem_id=problem.id, trajectories=tuple(trajectories))
