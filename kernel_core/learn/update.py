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
from kernel_core.learn.chunked_logits import by_token
from kernel_core.learn.decoder_layers import computed_again
from kernel_core.learn.distributed.data_parallel import ALONE, Share
from kernel_core.learn.loss import (
    LossSettings,
    k3,
    row_weights,
    summed_loss,
    surrogate,
    token_logprobs,
)
from kernel_core.learn.mismatch import Corrected, correct
from kernel_core.learn.update_report import Totals, UpdateReport
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import Progress, silent

log = logging.getLogger(__name__)

BETAS = (0.9, 0.95)


def new_optimiser(model: Any, lr: float, weight_decay: float = 0.0) -> torch.optim.AdamW:
    """AdamW over the weights that train; vectors (norms, biases) are not decayed."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.ndim >= 2]
    vectors = [parameter for parameter in trained if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = all(parameter.is_cuda and not isinstance(parameter, DTensor) for parameter in trained)
    return torch.optim.AdamW(
        [g for g in groups if g["params"]], lr=lr, betas=BETAS, eps=1e-8, fused=fused or None
    )


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


def clip_and_step_unseen(model: Any, optimiser: torch.optim.Optimizer, max_grad_norm: float) -> torch.Tensor:
    """`clip_and_step` without waiting for the GPU; gives the norm before clipping.

    The fused optimiser leaves a step out by itself where `found_inf` is 1, as gradient scalers tell it.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    optimiser.found_inf = (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return norm


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

    The sum over tokens is divided by what all rows make, those rejected included: leaving a row out is the
    same as its term being 0, and how many are left out does not scale the gradient of the others. As
    published, Dr. Kernel's code masks rejected rows, removes those without a token left and takes the mean
    over the rest: there, the more is rejected, the larger are the gradients of what is not.
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
    written = [row for row in corrected.rows if len(row.answer_ids)]
    weights = row_weights(
        [len(row.answer_ids) for row in written], config.aggregation, config.rollout.sampling.max_new_tokens
    )
    in_loss = [(row, weight) for row, weight in zip(written, weights, strict=True) if row.kept]
    regularised = settings.kl_coefficient > 0 or settings.entropy_coefficient > 0
    # Turns whose advantage is 0 count in the weights of the others but cost no forward pass.
    learnable = [(row, weight) for row, weight in in_loss if row.advantage != 0.0 or regularised]
    totals = Totals(corrected, len(in_loss) - len(learnable), settings.kl_coefficient > 0)
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
        return Corrected(list(rows))
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
