"""KernelBench's figures by level and kind of problem: correct by tolerance, and fast_p by baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from kernel_core.evaluation.metrics import Outcome, ProblemOutcomes, outcomes_in, share_above
from kernel_core.evaluation.statistics import in_per_cent, share
from kernel_core.evaluation.work import TOLERANCES
from kernel_core.records import BASELINES, Baseline, Tolerance, Verdict

Row = dict[str, Any]

THRESHOLDS = (1.0, 1.2, 1.5, 2.0)
KINDS = {
    "convolution": ("conv",),
    "product": ("matmul", "gemm", "matrix", "bmm", "matvec", "linear"),
    "attention": ("attention",),
    "norm": ("norm",),
    "pooling": ("pool",),
    "loss": ("loss",),
    "scan": ("cumsum", "cumprod"),
    "reduction": ("reduction", "softmax", "argmax", "argmin"),
}
"""Words in the name of a problem; the first kind that has one is taken, and without any it is elementwise."""


def without_empty_columns(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without the columns that say nothing in any of them."""
    names = [name for name in (rows[0] if rows else ()) if any(row[name] not in ("", 0) for row in rows)]
    return [{name: row[name] for name in names} for row in rows]


def kind_of(problem_id: str) -> str:
    """Return the kind of operator that the name of a KernelBench problem begins with."""
    name = problem_id.rpartition("/")[2].lower()
    return next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "elementwise")


def kind_rows(problems: Iterable[ProblemOutcomes]) -> list[Row]:
    """Return a row for each level of KernelBench and each kind of problem in it, of last turns.

    Shares are over all answers, in per cent with 95 % intervals over problems. fast_p is over the baseline
    `fair`, and not known without an answer that was timed. Rows are empty without KernelBench problems.
    """
    rows = []
    for name, part in _groups(problems, by_kind=True).items():
        answers = [outcomes_in(problem, "last", "measured") for problem in part]
        row: Row = {"group": name, "problems": len(part), "answers": sum(map(len, answers))}
        row |= {tolerance: _passing(answers, tolerance) for tolerance in TOLERANCES}
        row |= {f"fair {figure}": value for figure, value in _fast(answers, "fair").items()}
        rows.append(row)
    return without_empty_columns(rows)


def baseline_rows(problems: Iterable[ProblemOutcomes]) -> list[Row]:
    """Return a row for each level of KernelBench and each baseline: fast_p, and the median of the speed-ups.

    Without an answer that was timed against a baseline its row is left out.
    """
    rows = []
    for name, part in _groups(problems, by_kind=False).items():
        answers = [outcomes_in(problem, "last", "measured") for problem in part]
        for baseline in BASELINES:
            speedups = [
                speedup
                for outcomes in answers
                for outcome in outcomes
                if outcome.correct and (speedup := outcome.over.get(baseline)) is not None
            ]
            if speedups:
                row = {"group": name, "faster than": baseline, **_fast(answers, baseline)}
                rows.append(row | {"timed": len(speedups), "median": median(speedups)})
    return rows


def _groups(problems: Iterable[ProblemOutcomes], *, by_kind: bool) -> dict[str, list[ProblemOutcomes]]:
    """Return KernelBench's problems by level, and with `by_kind` also by level and kind."""
    groups: dict[str, list[ProblemOutcomes]] = {}
    # An interval of resampled problems depends on their order.
    for problem in sorted(problems, key=lambda problem: problem.problem_id):
        suite, _, name = problem.problem_id.partition("/")
        if suite != "kernelbench":
            continue
        level = name.partition("/")[0].replace("level", "level ")
        for group in (level, *([f"{level} {kind_of(name)}"] if by_kind else [])):
            groups.setdefault(group, []).append(problem)
    return dict(sorted(groups.items()))


def _passing(answers: Sequence[Sequence[Outcome]], tolerance: Tolerance) -> str:
    """Share of the answers with outputs that pass under a tolerance."""
    judged = (Verdict.CORRECT, Verdict.WRONG)
    shares = [
        fmean(outcome.verdict in judged and tolerance in outcome.tolerances for outcome in outcomes)
        for outcomes in answers
    ]
    return in_per_cent(share(shares))


def _fast(answers: Sequence[Sequence[Outcome]], baseline: Baseline) -> dict[str, str]:
    shares = {f"fast_{p:g}": share_above(answers, p, "measured", baseline) for p in THRESHOLDS}
    is_timed = any(baseline in outcome.over for outcomes in answers for outcome in outcomes)
    return {name: in_per_cent(estimate) if is_timed else "" for name, estimate in shares.items()}
