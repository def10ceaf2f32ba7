"""One update of the weights from the turns of a step."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed.tensor import DTensor

from kernel_core.config import MismatchConfig, TrainConfig
from kernel_core.learn.batch import Batch, Row, collate
from kernel_core.learn.head import by_token
from kernel_core.learn.layers import computed_again
from kernel_core.learn.loss import (
    LossSettings,
    Surrogate,
    k3,
    row_weights,
    summed_loss,
    surrogate,
    token_logprobs,
)
from kernel_core.learn.mismatch import Corrected, correct
from kernel_core.learn.share import ALONE, Share
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import Progress, silent
from kernel_core.records import Record

log = logging.getLogger(__name__)

BETAS = (0.9, 0.95)
_SUMMED = ("loss", "ratio", "clipped", "entropy", "sampler_kl", "reference_kl", "importance")


class UpdateReport(Record):
    """What one update did. Means are over the answer tokens that were trained on."""

    num_rows: int
    num_skipped_rows: int
    """Turns whose advantage is 0: they have nothing to say and cost no forward pass."""
    num_rejected_rows: int = 0
    """Turns taken out of the loss: by profile, by mismatch, or both."""
    num_mismatched_rows: int = 0
    """Those of them that sampler and trainer disagree on."""
    num_tokens: int
    """Of prompts and answers, read by the trainer (all passes)."""
    num_answer_tokens: int
    loss: float = 0.0
    grad_norm: float = 0.0
    """Before clipping, of the last optimiser step."""
    entropy: float = 0.0
    ratio_mean: float = 1.0
    ratio_max: float = 1.0
    clip_share: float = 0.0
    sampler_kl: float = 0.0
    """k3 estimate of KL(sampler ‖ trainer): how far apart the two are on the same tokens."""
    sampler_logprob_gap: float = 0.0
    """Largest |Δ log-probability| between sampler and trainer."""
    importance_mean: float = 1.0
    mismatch_worst: float = 0.0
    """Largest |log of the geometric mean ratio| of a conversation; 0 unless mismatch is corrected."""
    reference_kl: float = 0.0
    num_optimiser_steps: int = 0
    num_refused_steps: int = 0
    """Optimiser steps left out because the gradient was not finite."""


def new_optimiser(model: Any, lr: float, weight_decay: float = 0.0) -> torch.optim.AdamW:
    """AdamW over the weights that train; vectors (norms, biases) are not decayed."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.ndim >= 2]
    vectors = [parameter for parameter in trained if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=BETAS, eps=1e-8)


def keep_master_weights(policy: TorchPolicy) -> None:
    """Hold the weights that train in float32: steps of 1e-5 are lost in bfloat16's eight bits."""
    for parameter in policy.model.parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            parameter.data = parameter.data.float()


@contextmanager
def computing_in(policy: TorchPolicy, bfloat16: bool) -> Iterator[None]:
    """Matrix products in bfloat16 on CUDA where wanted; on a CPU always in the weights' own type."""
    with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16 and policy.device.type == "cuda"):
        yield


def clip_and_step(model: Any, optimiser: torch.optim.Optimizer, max_grad_norm: float) -> tuple[float, bool]:
    """Clip the gradient and take the step; gives the norm before clipping and whether it was taken.

    A gradient that is not finite would ruin every weight at once, so that step is left out and told.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    total = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    norm = float(total.full_tensor() if isinstance(total, DTensor) else total)
    finite = bool(np.isfinite(norm))
    if finite:
        optimiser.step()
    else:
        log.warning("the gradient is not finite (norm %s): this optimiser step is left out", norm)
    optimiser.zero_grad(set_to_none=True)
    return norm, finite


def update(
    policy: TorchPolicy,
    optimiser: torch.optim.Optimizer,
    rows: Sequence[Row],
    config: TrainConfig,
    reference: Any | None = None,
    progress: Progress = silent,
    share: Share = ALONE,
) -> UpdateReport:
    """`updates_per_step` passes over a step's turns, one optimiser step each.

    π_old is the trainer's own policy before the first step: the first pass reads it for free, since its
    weights have not moved yet (its ratios are exactly 1), and later passes compare with it. How far the
    sampler is from it is measured and reported. `reference` is a frozen model for the KL term. With a `share`
    every process of the team calls this with the same rows, and each has the same report.
    """
    settings = LossSettings(
        config.clip_low,
        config.clip_high,
        config.dual_clip,
        config.kl_coefficient,
        config.entropy_coefficient,
    )
    temperature = config.rollout.sampling.temperature
    look = functools.partial(
        token_logprobs, temperature=temperature, entropy_gradient=settings.entropy_coefficient > 0
    )
    corrected = _corrected(policy, rows, config, share)
    in_loss = [row for row in corrected.rows if row.kept and len(row.answer_ids)]
    weights = row_weights(
        [len(row.answer_ids) for row in in_loss], config.aggregation, config.rollout.sampling.max_new_tokens
    )
    regularised = settings.kl_coefficient > 0 or settings.entropy_coefficient > 0
    # Turns whose advantage is 0 count in the weights of the others but cost no forward pass.
    learnable = [
        (row, weight)
        for row, weight in zip(in_loss, weights, strict=True)
        if row.advantage != 0.0 or regularised
    ]
    totals = _Totals(corrected, len(in_loss) - len(learnable))
    plan = share.of([len(row) for row, _ in learnable], config.minibatch_tokens)
    old_logprobs: dict[int, torch.Tensor] = {}
    policy.model.eval()  # no dropout: log-probabilities are those of the policy that sampled
    for turn in range(config.updates_per_step if learnable else 0):
        for index, (members, counts) in enumerate(plan):
            batch = _collated(
                policy,
                [learnable[i][0] for i in members],
                # The gradient is averaged over the team, and wanted is its sum.
                [learnable[i][1] * share.size * counts for i in members],
            )
            with (
                computing_in(policy, config.policy.dtype == "bfloat16"),
                computed_again(policy.model, config.policy.gradient_checkpointing),
            ):
                logprobs, entropy = by_token(policy.model, batch, look)
            old = old_logprobs.setdefault(index, logprobs.detach())
            clipped = surrogate(logprobs, old, batch.advantages_B, settings)
            kl = _reference_kl(reference, batch, logprobs, temperature) if settings.kl_coefficient else None
            objective = clipped.objective_B_C * batch.importance_B_C
            counts_B_C = batch.mask_B_C * batch.row_weights_B[:, None]
            loss = summed_loss(objective, entropy, kl, counts_B_C, settings)
            torch.autograd.backward(loss)
            if counts:
                totals.add(batch, loss / share.size, clipped, entropy, old, kl)
            progress("update", done=turn * len(plan) + index + 1, total=config.updates_per_step * len(plan))
        share.average_gradients(policy.model)
        totals.stepped(*clip_and_step(policy.model, optimiser, config.max_grad_norm))
    totals.gather(share)
    return totals.report(len(rows), config.updates_per_step)


def _corrected(policy: TorchPolicy, rows: Sequence[Row], config: TrainConfig, share: Share) -> Corrected:
    """Rows after mismatch rejection; the trainer reads every answer for it, those without advantage too."""
    if config.mismatch == MismatchConfig():
        return Corrected(list(rows), num_rejected=0, worst_mean=0.0)
    return correct(rows, answer_logprobs(policy, rows, config, share), config.mismatch)


def answer_logprobs(
    policy: TorchPolicy, rows: Sequence[Row], config: TrainConfig, share: Share = ALONE
) -> list[npt.NDArray[np.float32]]:
    """The trainer's log-probability of each row's answer tokens, as its update computes them; a team shares
    the reading and each process has all of them."""
    found: dict[int, npt.NDArray[np.float32]] = {}
    look = functools.partial(token_logprobs, temperature=config.rollout.sampling.temperature)
    policy.model.eval()
    for members, counts in share.of([len(row) for row in rows], config.minibatch_tokens):
        batch = _collated(policy, [rows[i] for i in members])
        with torch.no_grad(), computing_in(policy, config.policy.dtype == "bfloat16"):
            logprobs, _ = by_token(policy.model, batch, look)
        for i, logprobs_C, mask_C in zip(members, logprobs, batch.mask_B_C, strict=True):
            if counts:
                found[i] = logprobs_C[mask_C.bool()].cpu().numpy()
    everybodys = share.gathered(found)
    return [everybodys[i] for i in range(len(rows))]


def _collated(policy: TorchPolicy, rows: Sequence[Row], weights: Sequence[float] | None = None) -> Batch:
    return collate(rows, policy.tokenizer.pad_token_id or 0, policy.device, weights)


def _reference_kl(
    reference: Any | None, batch: Batch, logprobs_B_C: torch.Tensor, temperature: float
) -> torch.Tensor:
    if reference is None:
        raise ValueError("a KL term needs the reference model; the trainer keeps one in its store")
    with torch.no_grad():
        reference_logprobs, _ = by_token(
            reference, batch, functools.partial(token_logprobs, temperature=temperature)
        )
    return k3(logprobs_B_C, reference_logprobs)


class _Totals:
    """Sums over batches, kept on the device until the end: reading them out would stop a GPU each time."""

    def __init__(self, corrected: Corrected, num_skipped: int) -> None:
        self.corrected = corrected
        self.num_skipped = num_skipped
        self.sums: dict[str, Any] = dict.fromkeys(_SUMMED, 0.0)
        self.peaks: dict[str, Any] = {"ratio": 0.0, "gap": 0.0}
        self.grad_norm = 0.0
        self.tokens = self.answers = self.taken = self.refused = 0

    def add(
        self,
        batch: Batch,
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
            "reference_kl": kl_B_C.detach() if kl_B_C is not None else torch.zeros_like(mask),
        }
        for name, value in parts.items():
            self.sums[name] += (value * mask).sum(dtype=torch.float64)
        self.sums["loss"] += loss.detach().double()
        self.peaks["ratio"] = (clipped.ratio_B_C * mask).max().clamp_min(self.peaks["ratio"])
        self.peaks["gap"] = gap_B_C.abs().max().clamp_min(self.peaks["gap"])
        self.sums["importance"] += (batch.importance_B_C * mask).sum(dtype=torch.float64)
        self.tokens += batch.ids_B_T.numel()
        self.answers += batch.num_answer_tokens

    def gather(self, share: Share) -> None:
        """Put the whole team's numbers in place of this process's."""
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
        """Means over the answer tokens of all passes."""
        counts = {
            "num_rows": num_rows,
            "num_skipped_rows": self.num_skipped,
            "num_rejected_rows": sum(not row.kept for row in self.corrected.rows),
            "num_mismatched_rows": self.corrected.num_rejected,
            "num_tokens": self.tokens,
            "num_answer_tokens": self.answers // num_passes,
        }
        if not self.answers:
            return UpdateReport(**counts, mismatch_worst=self.corrected.worst_mean)
        mean = {name: float(value) / self.answers for name, value in self.sums.items()}
        return UpdateReport(
            **counts,
            loss=float(self.sums["loss"]) / num_passes,
            grad_norm=self.grad_norm,
            entropy=mean["entropy"],
            ratio_mean=mean["ratio"],
            ratio_max=float(self.peaks["ratio"]),
            clip_share=mean["clipped"],
            sampler_kl=mean["sampler_kl"],
            sampler_logprob_gap=float(self.peaks["gap"]),
            importance_mean=mean["importance"],
            mismatch_worst=self.corrected.worst_mean,
            reference_kl=mean["reference_kl"],
            num_optimiser_steps=self.taken,
            num_refused_steps=self.refused,
        )
