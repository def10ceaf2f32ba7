"""Report of one update: sums over its batches."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.learn.batch import TokenBatch
from kernel_core.learn.distributed.data_parallel import Share
from kernel_core.learn.loss import Surrogate
from kernel_core.learn.mismatch import Corrected
from kernel_core.records import Record

_SUMMED = ("loss", "ratio", "clipped", "entropy", "sampler_kl", "reference_kl", "importance")
"""Over the rows that are trained on."""


class UpdateReport(Record):
    """Report of one update. Means are over the answer tokens that were trained on; None is not measured."""

    num_rows: int
    num_skipped_rows: int
    """Turns with advantage 0: they add nothing and cost no forward pass."""
    num_rejected_rows: int = 0
    """Turns taken out of the loss: by profile, by mismatch, or as regressions."""
    num_mismatched_rows: int = 0
    """Number of those rows on which sampler and trainer disagree."""
    num_tokens: int
    """Tokens of prompts and answers that were trained on (all passes), without padding."""
    num_answer_tokens: int
    loss: float | None = None
    grad_norm: float | None = None
    """Before clipping, of the last optimiser step."""
    agreement: float | None = None
    """Cosine between the gradients of two halves of the step's problems; see `gradient_agreement.py`."""
    entropy: float | None = None
    ratio_mean: float | None = None
    ratio_max: float | None = None
    clip_share: float | None = None
    sampler_kl: float | None = None
    """k3 estimate of KL(sampler ‖ trainer): how far apart the two are on the same tokens. Over all rows where
    mismatch is corrected, since the trainer reads them all for it; else over those that it trained on."""
    sampler_logprob_gap: float | None = None
    """Largest |Δ log-probability| between sampler and trainer, over the same rows."""
    importance_mean: float | None = None
    mismatch_worst: float | None = None
    """Largest |log of the geometric mean ratio| of a conversation, where mismatch is corrected."""
    reference_kl: float | None = None
    """Only where the loss has a KL term."""
    num_optimiser_steps: int = 0
    num_refused_steps: int = 0
    """Optimiser steps left out because the gradient was not finite."""

    @classmethod
    def nothing(cls) -> UpdateReport:
        """Return the report of a step that learned nothing."""
        return cls(num_rows=0, num_skipped_rows=0, num_tokens=0, num_answer_tokens=0)


class Totals:
    """Sums over batches, kept on the device until the end: reading them out would stop a GPU each time."""

    def __init__(self, corrected: Corrected, num_skipped: int, has_reference: bool) -> None:
        self.corrected = corrected
        self.num_skipped = num_skipped
        self.has_reference = has_reference
        self.sums: dict[str, Any] = dict.fromkeys(_SUMMED, 0.0)
        self.peaks: dict[str, Any] = {"ratio": 0.0, "gap": 0.0}
        self.grad_norm: float | None = None
        self.agreement: float | None = None
        self.tokens = self.answers = self.taken = self.refused = 0

    def add(
        self,
        batch: TokenBatch,
        loss: torch.Tensor,
        clipped: Surrogate,
        entropy_B_C: torch.Tensor,
        old_B_C: torch.Tensor,
        kl_B_C: torch.Tensor | None,
    ) -> None:
        """Count one batch in."""
        mask = batch.mask_B_C
        gap_B_C = (old_B_C - batch.sampler_logprobs_B_C) * mask
        parts = {
            "ratio": clipped.ratio_B_C,
            "clipped": clipped.clipped_B_C,
            "entropy": entropy_B_C.detach(),
            "sampler_kl": gap_B_C.exp() - gap_B_C - 1.0,
            "importance": batch.importance_B_C,
            "reference_kl": kl_B_C.detach() if kl_B_C is not None else torch.zeros_like(mask),
        }
        for name, value in parts.items():
            self.sums[name] += (value * mask).sum(dtype=torch.float64)
        self.sums["loss"] += loss.detach().double()
        self.peaks["ratio"] = (clipped.ratio_B_C * mask).max().clamp_min(self.peaks["ratio"])
        self.peaks["gap"] = gap_B_C.abs().max().clamp_min(self.peaks["gap"])
        self.tokens += batch.num_tokens
        self.answers += batch.num_answer_tokens

    def gather(self, share: Share) -> None:
        """Replace this process's numbers by the whole team's."""
        *sums, tokens, answers = share.total([*map(float, self.sums.values()), self.tokens, self.answers])
        self.sums = dict(zip(self.sums, sums, strict=True))
        self.tokens, self.answers = int(tokens), int(answers)
        self.peaks = dict(zip(self.peaks, share.largest([*map(float, self.peaks.values())]), strict=True))

    def stepped(self, grad_norm: float, taken: bool) -> None:
        """Count one optimiser step in."""
        self.grad_norm = grad_norm
        self.taken += taken
        self.refused += not taken

    def report(self, num_rows: int, num_passes: int) -> UpdateReport:
        """Means over the answer tokens of all passes; what all rows tell of the sampler goes before what the
        rows that are trained on do, of which there may be few left."""
        counts = {
            "num_rows": num_rows,
            "num_skipped_rows": self.num_skipped,
            "num_rejected_rows": sum(not row.kept for row in self.corrected.rows),
            "num_mismatched_rows": self.corrected.num_rejected,
            "num_tokens": self.tokens,
            "num_answer_tokens": self.answers // num_passes,
        }
        seen = {
            "sampler_kl": self.corrected.sampler_kl,
            "sampler_logprob_gap": self.corrected.logprob_gap,
            "mismatch_worst": self.corrected.worst_mean,
        }
        if not self.answers:
            return UpdateReport(**counts, **seen)
        mean = {name: float(value) / self.answers for name, value in self.sums.items()}
        is_sampled = any(row.sampler_logprobs is not None for row in self.corrected.rows)
        if self.corrected.sampler_kl is None and is_sampled:
            seen |= {"sampler_kl": mean["sampler_kl"], "sampler_logprob_gap": float(self.peaks["gap"])}
        return UpdateReport(
            **counts,
            **seen,
            loss=float(self.sums["loss"]) / num_passes,
            grad_norm=self.grad_norm,
            agreement=self.agreement,
            entropy=mean["entropy"],
            ratio_mean=mean["ratio"],
            ratio_max=float(self.peaks["ratio"]),
            clip_share=mean["clipped"],
            importance_mean=mean["importance"],
            reference_kl=mean["reference_kl"] if self.has_reference else None,
            num_optimiser_steps=self.taken,
            num_refused_steps=self.refused,
        )
