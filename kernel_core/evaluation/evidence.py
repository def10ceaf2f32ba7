"""The answers of a finished evaluation that are worth looking at, and what the judge said of them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kernel_core.evaluation.metrics import SpeedKind, in_words
from kernel_core.parquet_rows import unpacked
from kernel_core.records import Record, Verdict
from kernel_core.store import Store

MOST_SHOWN = 5
_COLUMNS = [
    *("problem_id", "verdict", "speedup", "predicted_speedup", "predicted_gpu", "code", "answer"),
    *("feedback", "findings", "own_kernel_share", "runtime_ms", "reference_ms", "predicted_ms"),
    "reference_predicted_ms",
]
_ORDER = (Verdict.HACKED, *(verdict for verdict in Verdict if verdict is not Verdict.HACKED))
"""Verdicts from the worst to the best."""


class Shown(Record):
    """An answer to one problem."""

    problem_id: str
    verdict: str
    speedup: float | None
    """Measured where there is a measurement, else predicted."""
    speed_kind: str
    """`measured`, or `predicted for` a GPU; empty without a speed-up."""
    code: str
    """The kernel, or the whole answer where none could be read."""
    feedback: str
    findings: tuple[str, ...]
    profile: str
    """Times and the share of its own kernels; empty where it was not timed."""

    def in_words(self) -> str:
        """Problem, verdict and speed-up."""
        speedup = f", speed-up {self.speedup:.2f} ({self.speed_kind})" if self.speed_kind else ""
        return f"{self.problem_id}: {self.verdict}{speedup}"

    @property
    def report_text(self) -> str:
        """The judge's profile, findings and feedback, one a line."""
        return "\n".join(filter(None, [self.profile, *self.findings, self.feedback]))


def best_answers(store: Store) -> list[Shown]:
    """The fastest correct answer to each problem, or else its last one, in order of problems."""
    return [max(reversed(answers), key=_worth) for answers in _by_problem(store)]


def extremes(store: Store) -> tuple[list[Shown], list[Shown]]:
    """The best and the worst answers, at most `MOST_SHOWN` each, each of another problem."""
    by_problem = _by_problem(store)
    best = [max(answers, key=_rank) for answers in by_problem]
    worst = [min(answers, key=_rank) for answers in by_problem]
    return sorted(best, key=_rank, reverse=True)[:MOST_SHOWN], sorted(worst, key=_rank)[:MOST_SHOWN]


def _by_problem(store: Store) -> list[list[Shown]]:
    """The answers to each problem, in order."""
    by_problem: dict[str, list[Shown]] = defaultdict(list)
    for shown in map(_shown, unpacked(store.read("evaluations.parquet"), _COLUMNS)):
        by_problem[shown.problem_id].append(shown)
    return list(by_problem.values())


def _shown(row: dict[str, Any]) -> Shown:
    kind: SpeedKind = "measured" if row["speedup"] is not None else "predicted"
    speedup = row["speedup"] if kind == "measured" else row["predicted_speedup"]
    return Shown(
        problem_id=row["problem_id"],
        verdict=row["verdict"],
        speedup=speedup,
        speed_kind=in_words(kind, row["predicted_gpu"]) if speedup is not None else "",
        code=row["code"] or row.get("answer") or "",
        feedback=row["feedback"] or "",
        findings=tuple(row["findings"] or ()),
        profile=_profile(row, kind),
    )


def _profile(row: dict[str, Any], kind: SpeedKind) -> str:
    names = {
        "measured": ("runtime_ms", "reference_ms"),
        "predicted": ("predicted_ms", "reference_predicted_ms"),
    }
    own, reference = (row[name] for name in names[kind])
    parts = [f"{own:.4g} ms, reference {reference:.4g} ms"] if own and reference else []
    if row["own_kernel_share"] is not None:
        parts.append(f"{100 * row['own_kernel_share']:.0f} % of the time in its own kernels")
    return "; ".join(parts)


def _worth(shown: Shown) -> tuple[bool, float]:
    return shown.verdict == Verdict.CORRECT, shown.speedup or 0.0


def _rank(shown: Shown) -> tuple[int, float]:
    return _ORDER.index(Verdict(shown.verdict)), shown.speedup or 0.0
