"""Correction of sampler-trainer mismatch: rejection, and truncated importance weights.

Sampler and trainer compute the same model with other kernels, batch shapes or precision, so tokens are drawn
from π_sampler and learned under π. Of each token, with both read before the update:

    ratio(token) = π(token) / π_sampler(token)

| setting          | what it does                                                                        |
|------------------|-------------------------------------------------------------------------------------|
| `band`           | rejects a conversation unless 1 − band ≤ w ≤ 1 + band, where w is the geometric     |
|                  | mean of the ratios of all its answer tokens (Dr. Kernel's MRS with 0.001); a mean,  |
|                  | not a product, so that long conversations are not rejected for their length         |
| `veto`           | rejects for one token with a ratio below (1e-4): the trainer would never write it;  |
|                  | the paper rejects the conversation, the released code the turn (`veto_scope`)       |
| `importance_cap` | weighs each token's objective by min(ratio, cap): unbiased but for the truncation   |
|                  | (truncated importance sampling, usually with 2)                                     |

What is rejected leaves the loss and stays in returns and baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kernel_core.config import MismatchConfig
from kernel_core.learn.batch import TokenRow

Floats = npt.NDArray[np.float32]
Ratios = Sequence[npt.NDArray[np.float64]]
"""Logarithms of the ratios of each row's answer tokens."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """Rows with what the mismatch says about them, and what a person wants to know."""

    rows: list[TokenRow]
    num_rejected: int = 0
    """Rows that this rule took out of the loss, by band or veto."""
    worst_mean: float | None = None
    """Largest |log w| of a conversation: 0.001 is one in a thousand."""
    sampler_kl: float | None = None
    """k3 estimate of KL(sampler ‖ trainer) over the tokens of all rows, rejected or not."""
    logprob_gap: float | None = None
    """Largest |Δ log-probability| of a token of theirs. None where the trainer did not read all rows."""


def correct(
    rows: Sequence[TokenRow], trainer_logprobs: Sequence[Floats], config: MismatchConfig
) -> Corrected:
    """Rows to learn from, given the trainer's log-probability of every answer token of every row.

    Rows without sampler log-probabilities (the sampler did not draw them) are left as they are.
    """
    log_ratios = [
        np.zeros(len(ours), np.float64) if row.sampler_logprobs is None else _log_ratio(ours, row)
        for row, ours in zip(rows, trainer_logprobs, strict=True)
    ]
    log_means = _means_by_conversation(rows, log_ratios)
    kept = _kept(rows, log_ratios, log_means, config)
    corrected = [
        replace(row, kept=row.kept and keep, importance=_weights(log_ratio, config.importance_cap))
        for row, log_ratio, keep in zip(rows, log_ratios, kept, strict=True)
    ]
    sampled = [
        log_ratio for row, log_ratio in zip(rows, log_ratios, strict=True) if row.sampler_logprobs is not None
    ]
    gaps = np.concatenate([np.zeros(0), *sampled])
    return Corrected(
        rows=corrected,
        num_rejected=sum(row.kept and not keep for row, keep in zip(rows, kept, strict=True)),
        worst_mean=max((abs(mean) for mean in log_means.values()), default=None),
        sampler_kl=float(np.mean(np.exp(gaps) - gaps - 1.0)) if len(gaps) else None,
        logprob_gap=float(np.abs(gaps).max()) if len(gaps) else None,
    )


def _log_ratio(ours: Floats, row: TokenRow) -> npt.NDArray[np.float64]:
    assert row.sampler_logprobs is not None
    ratio: npt.NDArray[np.float64] = ours.astype(np.float64) - row.sampler_logprobs.astype(np.float64)
    return ratio


def _means_by_conversation(rows: Sequence[TokenRow], log_ratios: Ratios) -> dict[int, float]:
    """Return the logarithm of w of each conversation."""
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for row, log_ratio in zip(rows, log_ratios, strict=True):
        sums[row.conversation] = sums.get(row.conversation, 0.0) + float(log_ratio.sum())
        counts[row.conversation] = counts.get(row.conversation, 0) + len(log_ratio)
    return {key: sums[key] / counts[key] if counts[key] else 0.0 for key in sums}


def _kept(
    rows: Sequence[TokenRow],
    log_ratios: Ratios,
    log_means: dict[int, float],
    config: MismatchConfig,
) -> list[bool]:
    low, high = -np.inf, np.inf
    if config.band is not None:
        low, high = np.log1p(-min(config.band, 1 - 1e-9)), np.log1p(config.band)
    lowest = -np.inf if config.veto is None else np.log(config.veto)
    vetoed = [bool(len(log_ratio)) and float(log_ratio.min()) < lowest for log_ratio in log_ratios]
    lost = {row.conversation for row, veto in zip(rows, vetoed, strict=True) if veto}
    if config.veto_scope == "turn":
        lost = set()
    return [
        low <= log_means[row.conversation] <= high and not veto and row.conversation not in lost
        for row, veto in zip(rows, vetoed, strict=True)
    ]


def _weights(log_ratio: npt.NDArray[np.float64], cap: float | None) -> Floats | None:
    if cap is None:
        return None
    return np.exp(np.minimum(log_ratio, np.log(cap))).astype(np.float32)
