"""For each problem of a finished evaluation, the answer worth looking at, and what the judge said of it."""

from __future__ import annotations

import io

import pyarrow.parquet as pq

from kernel_core.evaluation.metrics import SpeedKind, in_words
from kernel_core.records import Record
from kernel_core.store import Store


class Shown(Record):
    """The best answer to one problem."""

    problem_id: str
    verdict: str
    speedup: float | None
    """Measured where there is a measurement, else predicted."""
    speed_kind: str
    """`measured`, or `predicted for` a GPU; empty without a speed-up."""
    code: str
    feedback: str
    findings: tuple[str, ...]


def best_answers(store: Store) -> list[Shown]:
    """The fastest correct answer to each problem, or else its last one, in order of problems."""
    columns = ["problem_id", "verdict", "speedup", "predicted_speedup", "predicted_gpu"]
    columns += ["code", "feedback", "findings"]
    # Not `read_table`: for a single file too, that imports all of pyarrow.dataset and with it pandas.
    table = pq.ParquetFile(io.BytesIO(store.read("evaluations.parquet"))).read(columns=columns)
    best: dict[str, Shown] = {}
    for row in table.to_pylist():
        kind: SpeedKind = "measured" if row["speedup"] is not None else "predicted"
        speedup = row["speedup"] if kind == "measured" else row["predicted_speedup"]
        shown = Shown(
            problem_id=row["problem_id"],
            verdict=row["verdict"],
            speedup=speedup,
            speed_kind=in_words(kind, row["predicted_gpu"]) if speedup is not None else "",
            code=row["code"] or "",
            feedback=row["feedback"] or "",
            findings=tuple(row["findings"] or ()),
        )
        if shown.problem_id not in best or _worth(shown) >= _worth(best[shown.problem_id]):
            best[shown.problem_id] = shown
    return list(best.values())


def _worth(shown: Shown) -> tuple[bool, float]:
    return shown.verdict == "correct", shown.speedup or 0.0
