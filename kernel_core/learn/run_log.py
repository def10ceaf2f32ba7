"""Log of a training run for people: metrics, tables of turns, and tensorboard's curves.

    metrics.jsonl                    a row a step; fields that begin with `seconds` are wall clock.
    turns/step-000012.parquet        every prompt, completion, reward term, return and advantage.
    evaluations/step-000012.parquet  the judge's findings on each candidate.
    winners.jsonl                    the kernels that expert iteration replays.
    tensorboard/                     the same numbers as curves (a local folder only).

Everything is written before the checkpoint of its step, so after a kill there may be rows of steps that
count for nothing; `go_back` removes them, and the repeated step writes the same ones again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from kernel_core.dialogue.turns import TrajectoryGroup
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.evaluation.tables import TURN_SCHEMA, turn_rows
from kernel_core.learn.alarms import Alarm, alarms_after
from kernel_core.learn.credit import GradedTurn
from kernel_core.learn.winners import WINNERS
from kernel_core.parquet_rows import packed, schema_of
from kernel_core.records import Candidate, Problem
from kernel_core.runs.resolve import CHECKPOINTS
from kernel_core.store import Store

METRICS = "metrics.jsonl"
TABLES = ("turns", "evaluations")

GRADED_SCHEMA = schema_of(
    (pa.int64(), "step"),
    (pa.string(), "stage problem_id family"),
    (pa.int64(), "trajectory turn"),
    (pa.string(), "messages completion thinking candidate_sha256 verdict"),
    (pa.float64(), "worth"),
    (pa.float64(), " ".join(f"worth_{name}" for name in ("format", "compile", "correct", "speed"))),
    (pa.float64(), " ".join(f"worth_{name}" for name in ("own_share", "thinking", "length", "penalty"))),
    (pa.float64(), "paid return advantage"),
    (pa.bool_(), "repeats_earlier"),
    (pa.int64(), "num_tokens"),
    (pa.string(), "finish_reason"),
    (pa.list_(pa.string()), "exemplar_ids"),
    (pa.string(), "policy_version"),
)
"""Columns of `turns/`; `messages` is JSON."""


class Journal:
    """The files of one run; cheap to open, safe to open again after a kill."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._curves: Any = None

    def go_back(self, step: int) -> None:
        """Forget everything after a step (-1: everything)."""
        for log in (METRICS, CHECKPOINTS, WINNERS):
            forget_lines(self._store, log, step)
        for table in TABLES:
            for name in self._store.names(table):
                if _step_of(name) > step:
                    self._store.remove(f"{table}/{name}")
        self._open_curves(step)

    def write_tables(
        self,
        step: int,
        stage: str,
        problems: Sequence[Problem],
        groups: Sequence[TrajectoryGroup],
        graded: Sequence[Sequence[GradedTurn]],
        kind: SpeedKind,
    ) -> None:
        """Write the texts and rewards of a step's turns, and their evaluations."""
        rows = [
            _graded_row(step, stage, problem.family, graded_turn)
            for problem, group in zip(problems, graded, strict=True)
            for graded_turn in group
        ]
        name = f"step-{step:06d}.parquet"
        self._store.write(f"turns/{name}", packed(rows, GRADED_SCHEMA))
        self._store.write(f"evaluations/{name}", packed(turn_rows(problems, groups, kind), TURN_SCHEMA))

    def write_metrics(self, step: int, words: Mapping[str, str], numbers: Mapping[str, float]) -> list[Alarm]:
        """Append a row to `metrics.jsonl` and its numbers to tensorboard's curves.

        Gives the alarms that ring with it; they stand in the row as well.
        """
        alarms = alarms_after([*self._store.lines(METRICS), {"step": step, **numbers}])
        if alarms:
            words = {**words, "alarm": "; ".join(f"{alarm.kind}: {alarm.detail}" for alarm in alarms)}
        self._store.append_line(METRICS, {"step": step, **words, **numbers})
        if self._curves is not None:
            for name, value in numbers.items():
                self._curves.add_scalar(name, value, step)
            self._curves.flush()
        return alarms

    def _open_curves(self, step: int) -> None:
        if self._curves is not None:
            self._curves.close()
        if self._store.is_local:
            from torch.utils.tensorboard import SummaryWriter  # slow to import, and only needed here

            folder = self._store.path("tensorboard").removeprefix("file://")
            self._curves = SummaryWriter(folder, purge_step=step + 1)


def forget_lines(store: Store, log: str, step: int) -> None:
    """Remove the lines of a log, if it is there, that are of steps after this one."""
    if store.exists(log):
        kept = [row for row in store.lines(log) if row["step"] <= step]
        store.write(log, b"".join(json.dumps(row).encode() + b"\n" for row in kept))


def _graded_row(step: int, stage: str, family: str, graded: GradedTurn) -> dict[str, Any]:
    turn, terms = graded.turn, graded.terms
    return {
        "step": step,
        "stage": stage,
        "problem_id": turn.problem_id,
        "family": family,
        "trajectory": turn.trajectory,
        "turn": turn.index,
        "messages": json.dumps(turn.messages),
        "completion": turn.completion.text,
        "thinking": turn.candidate.thinking,
        "candidate_sha256": turn.candidate.sha256 if isinstance(turn.candidate, Candidate) else None,
        "verdict": str(turn.evaluation.verdict),
        "worth": terms.total,
        **{f"worth_{name}": value for name, value in terms.model_dump(exclude={"total"}).items()},
        "paid": graded.paid,
        "return": graded.following,
        "advantage": graded.advantage,
        "repeats_earlier": turn.repeats_earlier,
        "num_tokens": turn.completion.num_tokens,
        "finish_reason": turn.completion.finish_reason,
        "exemplar_ids": list(turn.exemplar_ids),
        "policy_version": turn.completion.policy_version,
    }


def _step_of(name: str) -> int:
    digits = name.removeprefix("step-").removesuffix(".parquet")
    return int(digits) if digits.isdigit() else -1
