"""Order of candidates: pure functions of their ranks, likeness and speed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernel_core.retrieval.embed import Vectors

_RRF_K = 60
"""Cormack, Clarke, Büttcher 2009: "Reciprocal rank fusion outperforms …", the constant of the paper."""
_SPEED_WEIGHT = 0.05
_SPEED_FOR_ALL = 8.0
"""Verified speed-up from which the prior no longer grows."""


def fused(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """Reciprocal rank fusion: each item's sum of 1 / (k + rank) over rankings, 1 for the first of all."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking):
            scores[item] = scores.get(item, 0.0) + (_RRF_K + 1) / (_RRF_K + 1 + rank) / len(rankings)
    return scores


def speed_prior(speedup: float | None) -> float:
    """Return the bonus of a verified speed-up: 0 where none is known or it is none, at most 0.05."""
    if speedup is None or speedup <= 1.0:
        return 0.0
    return _SPEED_WEIGHT * min(1.0, math.log(speedup) / math.log(_SPEED_FOR_ALL))


def diverse(merits: npt.NDArray[np.float32], vectors: Vectors, count: int, diversity: float) -> list[int]:
    """Positions chosen by maximal marginal relevance (Carbonell and Goldstein 1998), the best first.

    Each next one has the most of (1 - diversity) · merit - diversity · likeness to the nearest chosen one.
    `merits` has shape (candidates,), `vectors` shape (candidates, dimension).
    """
    chosen: list[int] = []
    likeness = np.full(len(merits), -1.0, np.float32)
    left = np.ones(len(merits), bool)
    while len(chosen) < min(count, len(merits)):
        penalty = diversity * likeness if chosen else 0.0
        value = np.where(left, (1 - diversity) * merits - penalty, -np.inf)
        best = int(value.argmax())
        chosen.append(best)
        left[best] = False
        likeness = np.maximum(likeness, vectors @ vectors[best])
    return chosen
