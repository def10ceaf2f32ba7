"""Estimates from a few problems, each with a few samples, and how far to trust them.

Samples of one problem resemble one another, so the unit of every interval is the problem: resamples draw
problems with replacement (a cluster bootstrap) and take the 2.5 % and 97.5 % quantiles. The draws are
seeded and shared by every figure of the same number of problems. So figures which must be ordered (fast_p at
rising p) stay ordered at their interval ends too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kernel_core.records import Record

NUM_RESAMPLES = 2000
_QUANTILES = (0.025, 0.975)

Floats = npt.NDArray[np.float64]


class Estimate(Record):
    """A figure with its 95 % interval; without one (None) where a single problem stands behind it."""

    value: float
    low: float | None
    high: float | None


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The chance that at least one of `k` samples, drawn without replacement, is correct.

    `1 - C(n - c, k) / C(n, k)`, the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374).
    """
    if not 1 <= k <= num_samples or not 0 <= num_correct <= num_samples:
        raise ValueError(f"pass@{k} of {num_correct} correct in {num_samples} samples is not defined")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def share(shares_of_problems: Sequence[float]) -> Estimate:
    """The mean of one share a problem, each in [0, 1].

    Two imaginary problems take part in the resampling, one that always succeeds and one that never does.
    This is Agresti and Coull's correction, for problems: 0 of 24 is not reported as certainly 0.
    """
    if not shares_of_problems:
        raise ValueError("no problems to average over")
    return _mean_with_imaginary(np.asarray(shares_of_problems, dtype=np.float64), worst=0.0, best=1.0)


def mean_difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """The mean over problems of `after - before`, shares paired by position.

    The two imaginary problems of `share` are here one that is gained whole and one that is lost whole.
    """
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    return _mean_with_imaginary(differences, worst=-1.0, best=1.0)


def geometric_mean(speedups_by_problem: Sequence[Sequence[float]]) -> Estimate | None:
    """The geometric mean over all speed-ups, some of each problem; None where there are none."""
    logs, counts = _log_sums(speedups_by_problem)
    if counts.sum() == 0:
        return None
    value = float(np.exp(logs.sum() / counts.sum()))
    if np.count_nonzero(counts) < 2:
        return Estimate(value=value, low=None, high=None)
    draws = _resamples(counts.size)
    totals = counts[draws].sum(axis=1)
    means = logs[draws].sum(axis=1)[totals > 0] / totals[totals > 0]
    low, high = _quantiles(np.exp(means))
    return Estimate(value=value, low=low, high=high)


def geometric_mean_ratio(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> Estimate | None:
    """`after`'s geometric mean over `before`'s, problems resampled together; None where either is empty."""
    (logs_0, counts_0), (logs_1, counts_1) = _log_sums(before), _log_sums(after)
    if counts_0.sum() == 0 or counts_1.sum() == 0:
        return None
    value = float(np.exp(logs_1.sum() / counts_1.sum() - logs_0.sum() / counts_0.sum()))
    if min(np.count_nonzero(counts_0), np.count_nonzero(counts_1)) < 2:
        return Estimate(value=value, low=None, high=None)
    draws = _resamples(counts_0.size)
    totals_0, totals_1 = counts_0[draws].sum(axis=1), counts_1[draws].sum(axis=1)
    usable = (totals_0 > 0) & (totals_1 > 0)
    means_0 = logs_0[draws].sum(axis=1)[usable] / totals_0[usable]
    means_1 = logs_1[draws].sum(axis=1)[usable] / totals_1[usable]
    low, high = _quantiles(np.exp(means_1 - means_0))
    return Estimate(value=value, low=low, high=high)


def _mean_with_imaginary(values: Floats, worst: float, best: float) -> Estimate:
    value = float(values.mean())
    padded = np.append(values, (worst, best))
    low, high = _quantiles(padded[_resamples(padded.size)].mean(axis=1))
    return Estimate(value=value, low=min(low, value), high=max(high, value))


def _log_sums(speedups_by_problem: Sequence[Sequence[float]]) -> tuple[Floats, Floats]:
    logs = np.asarray([sum(math.log(s) for s in speedups) for speedups in speedups_by_problem])
    counts = np.asarray([float(len(speedups)) for speedups in speedups_by_problem])
    return logs, counts


def _quantiles(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, _QUANTILES)
    return float(low), float(high)


@lru_cache(maxsize=32)
def _resamples(num_problems: int) -> npt.NDArray[np.int64]:
    """Positions of the problems in each resample, `[NUM_RESAMPLES, num_problems]`."""
    return np.random.default_rng(0).integers(0, num_problems, (NUM_RESAMPLES, num_problems))
