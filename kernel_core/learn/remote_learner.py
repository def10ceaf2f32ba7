"""Update of a policy on a server: the same rows, rejection and sums as `update.py`.

The server reads every answer first. Its log-probabilities are π_old, and the sampler is compared with them.
A token's objective is weight · π / π_old with a ratio of 1: the gradient of the clipped surrogate in the
first pass over a step. Further passes would need our clips there; reading the settings refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernel_core.config import TrainConfig
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.learner import Learning, rate
from kernel_core.learn.mismatch import Corrected, correct
from kernel_core.learn.update import learnable_rows
from kernel_core.learn.update_report import UpdateReport
from kernel_core.policy.remote_model import Answered, Floats, Learned, Weighted
from kernel_core.policy.tinker_policy import TinkerPolicy
from kernel_core.progress import Progress


class RemoteLearner(Learning):
    """A KL term is refused. Weights and optimiser are in what the policy saves."""

    def __init__(self, config: TrainConfig, policy: TinkerPolicy) -> None:
        self._config, self._policy = config, policy

    def update(self, rows: Sequence[TokenRow], step: int, progress: Progress) -> UpdateReport:
        written = [row for row in rows if len(row.answer_ids)]
        if self._config.method == "frozen" or not written:
            return UpdateReport.nothing()
        ours = self._policy.model.logprobs([Answered(row.prompt_ids, row.answer_ids) for row in written])
        progress("update", done=1, total=2)
        corrected = correct(written, ours, self._config.mismatch)
        old = {id(row): logprobs for row, logprobs in zip(corrected.rows, ours, strict=True)}
        learnable, num_skipped = learnable_rows(corrected.rows, self._config)
        batch = [
            Weighted(row.prompt_ids, row.answer_ids, old[id(row)], self._weights(row, weight))
            for row, weight in learnable
        ]
        learned = None
        if batch:
            learned = self._policy.model.learn(batch, rate(self._config, step), self._config.max_grad_norm)
        progress("update", done=2, total=2)
        report = _report(len(rows), num_skipped, corrected, [row for row, _ in learnable], batch)
        if learned is None:
            return report
        return report.model_copy(update=_found(batch, learned, self._config.method == "expert_iteration"))

    def _weights(self, row: TokenRow, weight: float) -> Floats:
        """Return the weight of each answer token in the sum over the step."""
        advantage = 1.0 if self._config.method == "expert_iteration" else row.advantage
        return (row.weights * np.float32(advantage * weight)).astype(np.float32)


def _report(
    num_rows: int, num_skipped: int, corrected: Corrected, rows: Sequence[TokenRow], batch: Sequence[Weighted]
) -> UpdateReport:
    """Return the report of values known before the update."""
    weights = [row.weights for row in rows]
    drawn = [
        weighted.old_logprobs
        for weighted, row in zip(batch, rows, strict=True)
        if row.sampler_logprobs is not None
    ]
    return UpdateReport(
        num_rows=num_rows,
        num_skipped_rows=num_skipped,
        num_rejected_rows=sum(not row.kept for row in corrected.rows),
        num_mismatched_rows=corrected.num_rejected,
        num_tokens=sum(map(len, rows)),
        num_answer_tokens=sum(len(row.answer_ids) for row in rows),
        sampler_kl=corrected.sampler_kl,
        sampler_logprob_gap=corrected.logprob_gap,
        mismatch_worst=corrected.worst_mean,
        # The mean of −log π over tokens that π drew estimates its entropy without bias.
        entropy=-float(np.concatenate(drawn).mean()) if drawn else None,
        importance_mean=float(np.concatenate(weights).mean()) if batch else None,
    )


def _found(batch: Sequence[Weighted], learned: Learned, imitates: bool) -> dict[str, Any]:
    """Return the metrics of the update, over the trained answer tokens; clips are not known."""
    now = np.concatenate(learned.logprobs)
    ratios = np.exp(now - np.concatenate([weighted.old_logprobs for weighted in batch]))
    weights = np.concatenate([weighted.weights for weighted in batch])
    return {
        "loss": -float(((now if imitates else ratios) * weights).sum()),
        "grad_norm": learned.grad_norm,
        "ratio_mean": float(ratios.mean()),
        "ratio_max": float(ratios.max()),
        "num_optimiser_steps": 1,
    }
