"""Estimates from a few problems, each with a few samples, and their 95 % intervals.

Samples of one problem resemble one another, so the unit of every interval is the problem.

- A share is resampled over problems (a cluster bootstrap). The draws are seeded and shared by every figure of
  the same number of problems, so that figures which must be ordered (fast_p at rising p) have ordered ends.
- A difference, a geometric mean and a ratio of two have the standard error of their linear approximation over
  problems, and Student's quantile. This is the limit of the bootstrap; its percentiles cover too rarely below
  about 30 problems (docs/results/intervals.md).
- A p-value swaps before and after of each problem (for a mean difference a sign-flip test). Over several
  seeds it is Student's, from the standard error of the interval.

Draws of the policy and its training are variances of their own. An interval over problems has the first in
it, as far as the draws of different problems are independent; only several seeds show the second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from kernel_core.records import Record

LEVEL = 0.05
"""Share of intervals that may miss; the p-value below which a change is clear."""
NUM_RESAMPLES = 2000
_QUANTILES = (LEVEL / 2, 1 - LEVEL / 2)
_ALL_SWAPS_UP_TO = 12
"""Problems that differ; with more of them swaps are drawn at random."""
_NUM_SWAPS = 2000
_NO_SPREAD = 1e-20
"""A variance below it is rounding."""

Floats = npt.NDArray[np.float64]


class Estimate(Record):
    """A figure with its 95 % interval; None where the data show no spread, such as a single problem's."""

    value: float
    low: float | None
    high: float | None


class Difference(Estimate):
    """A paired difference or ratio with a test of no change."""

    p_value: float
    """Chance of at least as large a change where there is none; how it is computed, each function says."""

    @property
    def clear(self) -> bool:
        """The p-value is below 5 %."""
        return self.p_value < LEVEL


def in_per_cent(estimate: Estimate, *, signed: bool = False) -> str:
    """Return a share or difference in per cent with its interval, and the p-value of a difference."""
    sign = "+" if signed else ""
    words = f"{100 * estimate.value:{sign}.1f} %"
    if estimate.low is not None and estimate.high is not None:
        words += f" ({100 * estimate.low:{sign}.1f} … {100 * estimate.high:{sign}.1f})"
    return f"{words} p {estimate.p_value:.3f}" if isinstance(estimate, Difference) else words


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
    values = np.asarray(shares_of_problems, dtype=np.float64)
    padded = np.append(values, (0.0, 1.0))
    low, high = np.quantile(padded[_resamples(padded.size)].mean(axis=1), _QUANTILES)
    value = float(values.mean())
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


def share_of_seeds(shares: Sequence[Sequence[float]]) -> Estimate:
    """The mean of shares, one sequence of the same problems for each seed.

    Its interval holds the one over problems of the seeds' mean, and the one with the variance over seeds.
    """
    values = np.asarray(shares, dtype=np.float64)
    over_problems = share(values.mean(axis=0).tolist())
    low, high = _interval(over_problems.value, *_crossed(values))
    if low is None or high is None or over_problems.low is None or over_problems.high is None:
        return over_problems
    low, high = max(0.0, min(low, over_problems.low)), min(1.0, max(high, over_problems.high))
    return Estimate(value=over_problems.value, low=low, high=high)


def mean_difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """The mean over problems of `after - before`, paired by position."""
    return mean_difference_of_seeds([before], [after])


def mean_difference_of_seeds(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> Difference:
    """The mean of `after - before`, one sequence of the same problems for each seed.

    Problems and seeds are crossed: the variances of the means by problem and by seed are added, which counts
    the rest twice and so errs on the wide side (Cameron, Gelbach and Miller 2011 subtract it). Degrees of
    freedom are Satterthwaite's. The p-value is of the same error; that of one seed swaps problems.
    """
    olds, news = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    differences = news - olds
    value, clusterings = float(differences.mean()), _crossed(differences)
    low, high = _interval(value, *clusterings)
    error = _standard_error(*clusterings)
    if len(differences) > 1 and error is not None:
        p_value = student_p_value(value / error[0], error[1])
    else:
        sums = olds.mean(axis=0)[:, None], news.mean(axis=0)[:, None]
        p_value = _swap_test(*sums, lambda old, new: new[..., 0] - old[..., 0])
    return Difference(value=value, low=low, high=high, p_value=p_value)


def geometric_mean(speedups_by_problem: Sequence[Sequence[float]]) -> Estimate | None:
    """The geometric mean over all speed-ups, some of each problem; None where there are none."""
    sums = _log_sums(speedups_by_problem)
    if sums[:, 1].sum() == 0:
        return None
    value = float(_mean_logs(sums.sum(axis=0)))
    low, high = _interval(value, _influences(sums)[sums[:, 1] > 0])
    return Estimate(value=math.exp(value), low=_exp(low), high=_exp(high))


def geometric_mean_ratio(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> Difference | None:
    """`after`'s geometric mean over `before`'s, paired by problem; None where either is empty."""
    olds, news = _log_sums(before), _log_sums(after)
    if olds[:, 1].sum() == 0 or news[:, 1].sum() == 0:
        return None

    def change(old: Floats, new: Floats) -> Floats:
        return _mean_logs(new) - _mean_logs(old)

    value = float(change(olds.sum(axis=0), news.sum(axis=0)))
    known = min(np.count_nonzero(olds[:, 1]), np.count_nonzero(news[:, 1]))
    influences = (_influences(news) - _influences(olds))[(olds + news)[:, 1] > 0]
    low, high = _interval(value, influences) if known > 1 else (None, None)
    p_value = _swap_test(olds, news, change)
    return Difference(value=math.exp(value), low=_exp(low), high=_exp(high), p_value=p_value)


def student_quantile(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t."""
    return float(stdtrit(degrees, 1 - LEVEL / 2))


def student_p_value(statistic: float, degrees: int) -> float:
    """Return the chance that Student's t is at least as far from 0."""
    return 2 * float(stdtr(degrees, -abs(statistic)))


def _crossed(values: Floats) -> tuple[Floats, Floats]:
    """Influences of the problems and of the seeds on the mean of `values`, `[seeds, problems]`."""
    by_problem, by_seed = values.mean(axis=0) - values.mean(), values.mean(axis=1) - values.mean()
    return by_problem / by_problem.size, by_seed / by_seed.size


def _interval(value: float, *clusterings: Floats) -> tuple[float | None, float | None]:
    """`value` ± Student's quantile times the standard error; None without spread."""
    error = _standard_error(*clusterings)
    if error is None:
        return None, None
    half = student_quantile(error[1]) * error[0]
    return value - half, value + half


def _standard_error(*clusterings: Floats) -> tuple[float, int] | None:
    """The standard error and its degrees of freedom; None without spread.

    Each clustering has one influence on the value a cluster; a clustering of one cluster is left out.
    """
    used = [influences for influences in clusterings if influences.size > 1]
    variances = [
        float((influences**2).sum()) * influences.size / (influences.size - 1) for influences in used
    ]
    total = sum(variances)
    if total < _NO_SPREAD:
        return None
    parts = zip(variances, used, strict=True)
    degrees = total**2 / sum(variance**2 / (influences.size - 1) for variance, influences in parts)
    return math.sqrt(total), max(1, math.floor(degrees + 1e-9))


def _log_sums(speedups_by_problem: Sequence[Sequence[float]]) -> Floats:
    """Sum of logarithms and count of each problem, `[problems, 2]`."""
    return np.asarray(
        [[sum(map(math.log, speedups)), float(len(speedups))] for speedups in speedups_by_problem]
    )


def _mean_logs(sums: Floats) -> Floats:
    """Mean logarithm of sums and counts, `[..., 2]`; infinite where there is nothing to average."""
    with np.errstate(divide="ignore", invalid="ignore"):
        means: Floats = np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.inf)
    return means


def _influences(sums: Floats) -> Floats:
    """Influence of each problem with a speed-up on the mean logarithm, the linear term of a ratio of sums."""
    total = sums.sum(axis=0)
    influences: Floats = (sums[:, 0] - sums[:, 1] * total[0] / total[1]) / total[1]
    return influences


def _exp(log: float | None) -> float | None:
    return None if log is None else math.exp(log)


def _swap_test(before: Floats, after: Floats, statistic: Callable[[Floats, Floats], Floats]) -> float:
    """Share of swaps of before and after that give a statistic at least as far from zero.

    `before` and `after` are `[problems, sums]`; `statistic` takes totals `[..., sums]`. All swaps are tried
    where few problems differ; else random ones, with the observed one among them.
    """
    deltas = after - before
    deltas = deltas[np.any(deltas != 0, axis=1)]
    if not len(deltas):
        return 1.0
    moved = _swaps(len(deltas)) @ deltas
    with np.errstate(invalid="ignore"):
        changes = np.abs(statistic(before.sum(axis=0) + moved, after.sum(axis=0) - moved))
    changes = np.where(np.isnan(changes), np.inf, changes)  # an empty side is as extreme as it gets
    return float(np.mean(changes >= changes[0] * (1 - 1e-9) - 1e-12))


@lru_cache(maxsize=32)
def _swaps(number: int) -> Floats:
    """Indicators of swapped problems, `[swaps, number]` of 0 and 1; the first row swaps none."""
    if number <= _ALL_SWAPS_UP_TO:
        return (np.arange(1 << number)[:, None] >> np.arange(number) & 1).astype(np.float64)
    swaps = np.random.default_rng(0).integers(0, 2, (_NUM_SWAPS, number)).astype(np.float64)
    swaps[0] = 0.0
    return swaps


@lru_cache(maxsize=32)
def _resamples(num_problems: int) -> npt.NDArray[np.int64]:
    """Positions of the problems in each resample, `[NUM_RESAMPLES, num_problems]`."""
    return np.random.default_rng(0).integers(0, num_problems, (NUM_RESAMPLES, num_problems))
