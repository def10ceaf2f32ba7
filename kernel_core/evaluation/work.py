"""Counts of answers by the tolerance they pass, the precision of their products, and their own work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernel_core.records import Record, Tolerance, Verdict

if TYPE_CHECKING:
    from kernel_core.evaluation.metrics import Outcome

TOLERANCES: tuple[Tolerance, ...] = ("field", "measured", "strict")
FUSED_TAIL_BELOW = 0.5
"""Share of the time in own kernels below which a correct answer counts as a fused tail: the library does most
of the work, such as a convolution or a product before it."""


class WorkCounts(Record):
    """Counts of the answers of a view by precision, tolerance and share of own work."""

    num_answers: int
    num_correct: int
    tolerances: dict[Tolerance, int]
    """Answers with outputs that pass under each tolerance; empty where no evaluation names any."""
    tolerances_unknown: int
    """Correct answers without a word on tolerances."""
    precisions: dict[str, int]
    """Correct answers by the precision of their products; `none known` has those without."""
    own_share: tuple[float, float, float] | None
    """Quartiles over the correct answers with a known share."""
    own_share_unknown: int
    fused_tails: int
    """Correct answers with less than `FUSED_TAIL_BELOW` of the time in own kernels."""
    without_compile: int = 0
    """Timed correct answers for which `torch.compile` has no time: their fair baseline is eager alone."""
    not_exercised: int = 0
    """Correct answers whose loops or grids turned less than at the problems' own sizes."""


def work_of(outcomes: Sequence[Outcome]) -> WorkCounts:
    """Count the answers of a view."""
    correct = [outcome for outcome in outcomes if outcome.correct]
    passed = Counter(
        name
        for outcome in outcomes
        if outcome.verdict in (Verdict.CORRECT, Verdict.WRONG)
        for name in outcome.tolerances
    )
    precisions = Counter(outcome.product_precision or "none known" for outcome in correct)
    shares = [outcome.own_share for outcome in correct if outcome.own_share is not None]
    low, middle, high = np.quantile(shares, (0.25, 0.5, 0.75)).tolist() if shares else (0.0, 0.0, 0.0)
    return WorkCounts(
        num_answers=len(outcomes),
        num_correct=len(correct),
        tolerances={name: passed[name] for name in TOLERANCES} if passed else {},
        tolerances_unknown=sum(not outcome.tolerances for outcome in correct),
        precisions=dict(precisions.most_common()),
        own_share=(low, middle, high) if shares else None,
        own_share_unknown=len(correct) - len(shares),
        fused_tails=sum(share < FUSED_TAIL_BELOW for share in shares),
        without_compile=sum(
            "fair" in outcome.over and not {"compile", "compile_tf32"} & outcome.over.keys()
            for outcome in correct
        ),
        not_exercised=sum(not outcome.is_exercised for outcome in correct),
    )
