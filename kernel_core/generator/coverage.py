"""Counts what the generator answers: for each problem the verdict of its kernel, or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kernel_core.errors import DojoError
from kernel_core.generator.graded import widest_answer
from kernel_core.generator.read import Unreadable
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_here
from kernel_core.records import Evaluation, Problem


def cover(problems: Sequence[Problem], device: str, precision: str, judged: bool) -> list[dict[str, Any]]:
    """A row a problem: `problem`, `outcome`, `kernels`, `speedup`, and `reasons` for what stays with PyTorch.

    An outcome is a verdict, `written` where nothing is judged, `unanswered: …` or `not judged: …`.
    """
    rows: list[dict[str, Any]] = []
    requests, places = [], []
    for problem in problems:
        row: dict[str, Any] = {"problem": problem.id, "outcome": "written", "kernels": 0, "reasons": []}
        rows.append(row)
        try:
            written = widest_answer(problem, precision)
        except Unreadable as error:
            row["outcome"] = f"unanswered: {error}"
            continue
        row |= {"kernels": written.kernels, "reasons": sorted(set(written.reasons))}
        if judged:
            requests.append(request_of(problem, written.source, {}, 1, device))
            places.append(row)
    if requests:
        gym = {"device": device, "rules": "dojo", "cluster": "local"}
        for row, result in zip(places, judge_here(requests, gym)[0], strict=True):
            outcome = result.outcome
            if isinstance(outcome, Evaluation):
                row["outcome"] = str(outcome.verdict)
                row |= {"speedup": outcome.speedup, "feedback": outcome.feedback}
            else:
                row["outcome"] = f"not judged: {outcome}" if isinstance(outcome, DojoError) else "not judged"
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Number of problems by outcome, most frequent first."""
    return dict(Counter(row["outcome"] for row in rows).most_common())
