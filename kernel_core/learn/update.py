"""Update of the weights from the turns of a step."""

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
from kernel_core.learn.batch import TokenBatch, TokenRow, collate
from kernel_core.learn.chunked_logits import by_token
from kernel_core.learn.decoder_layers import computed_again
from kernel_core.learn.distributed.data_parallel import ALONE, Share, number_of
from kernel_core.learn.gradient_agreement import agreement, gradient_of, halves_of
from kernel_core.learn.loss import (
    Aggregation,
    Surrogate,
    imitation,
    k3,
    row_weights,
    summed_loss,
    surrogate,
    token_logprobs,
)
from kernel_core.learn.mismatch import Corrected, correct
from kernel_core.learn.reference import Reference
from kernel_core.learn.update_report import Totals, UpdateReport
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import Progress, silent

log = logging.getLogger(__name__)

BETAS = (0.9, 0.95)
EPS = 1e-10
"""AdamW's. A model of 7 G weights with a gradient of norm 0.005 has 6e-8 a weight: the usual 1e-8 would
shorten its steps by a sixth, and more the longer the answers are."""
SPIKE = 3.0
"""Times its usual length that a gradient may have: norms of neighbouring steps differ by less."""


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
        [g for g in groups if g["params"]], lr=lr, betas=BETAS, eps=EPS, fused=fused or None
    )


def set_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimiser.param_groups:
        group["lr"] = lr


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


def clip_and_step(
    model: Any, optimiser: torch.optim.Optimizer, max_grad_norm: float | None
) -> tuple[float, bool]:
    """Clip the gradient and take the step; gives the norm before clipping and whether it was taken.

    Without `max_grad_norm` a gradient may be `SPIKE` times as long as it usually is. A gradient that is not
    finite would ruin every weight at once, so that step is left out and told.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    limit = SPIKE * usual_norm(optimiser) if max_grad_norm is None else max_grad_norm
    norm = number_of(torch.nn.utils.clip_grad_norm_(parameters, limit))
    finite = bool(np.isfinite(norm))
    if finite:
        optimiser.step()
    else:
        log.warning("the gradient is not finite (norm %s): this optimiser step is left out", norm)
    optimiser.zero_grad(set_to_none=True)
    return norm, finite


def usual_norm(optimiser: torch.optim.Optimizer) -> float:
    """Return the gradient's norm as AdamW's second moments remember it: √(Σ v / (1 − β₂^t)).

    It is the root mean square over about the last 20 steps, and every checkpoint holds it. Infinite before
    the first step, and for other optimisers.
    """
    total = 0.0
    for group in optimiser.param_groups:
        states = [state for p in group["params"] if "exp_avg_sq" in (state := optimiser.state.get(p, {}))]
        if states:
            squares = number_of(sum(state["exp_avg_sq"].sum(dtype=torch.float64) for state in states))
            total += squares / (1.0 - group["betas"][1] ** float(states[0]["step"]))
    return total**0.5 if total > 0.0 else float("inf")


def update(
    policy: TorchPolicy,
    optimiser: torch.optim.Optimizer,
    rows: Sequence[TokenRow],
    config: TrainConfig,
    reference: Reference | None = None,
    progress: Progress = silent,
    share: Share = ALONE,
) -> UpdateReport:
    """`updates_per_step` passes over a step's turns, one optimiser step each.

    π_old is the trainer's own policy before the first step: the first pass reads it for free, since its
    weights have not moved yet (its ratios are exactly 1), and later passes compare with it. How far the
    sampler is from it is measured and reported. `reference` holds the weights of the KL term. With a `share`
    every process of the team calls this with the same rows, and each has the same report.

    The sum over tokens is divided by what all rows make, those rejected included: leaving a row out is the
    same as its term being 0, and how many are left out does not scale the gradient of the others. As
    published, Dr. Kernel's code masks rejected rows, removes those without a token left and takes the mean
    over the rest: there, the more is rejected, the larger are the gradients of what is not.
    """
    corrected = _corrected(policy, rows, config, share)
    learnable, num_skipped = learnable_rows(corrected.rows, config)
    totals = Totals(corrected, num_skipped, has_reference=config.kl_coefficient > 0)
    plan, num_first = _planned([row for row, _ in learnable], config.minibatch_tokens, share)
    old_logprobs: dict[int, torch.Tensor] = {}
    first_half: list[torch.Tensor] | None = None
    policy.model.eval()  # no dropout: log-probabilities are those of the policy that sampled
    for turn in range(config.updates_per_step if learnable else 0):
        for index, (members, counts) in enumerate(plan):
            batch = _collated(
                policy,
                [learnable[i][0] for i in members],
                # The gradient is averaged over the team, and wanted is its sum.
                [learnable[i][1] * share.size * counts for i in members],
            )
            logprobs, entropy, kl = _read(policy, batch, config, reference)
            old = old_logprobs.setdefault(index, logprobs.detach())
            objective = _objective(logprobs, old, batch, config)
            loss = summed_loss(
                objective.objective_B_C * batch.importance_B_C,
                entropy,
                kl,
                batch.mask_B_C * batch.row_weights_B[:, None],
                config,
            )
            torch.autograd.backward(loss)
            if counts:
                totals.add(batch, loss / share.size, objective, entropy, old, kl)
            if turn == 0 and index + 1 == num_first:
                first_half = gradient_of(policy.model)
            progress("update", done=turn * len(plan) + index + 1, total=config.updates_per_step * len(plan))
        if turn == 0:
            totals.agreement = agreement(first_half, policy.model)
        totals.stepped(*clip_and_step(policy.model, optimiser, config.max_grad_norm))
    totals.gather(share)
    return totals.report(len(rows), config.updates_per_step)


def _planned(
    rows: Sequence[TokenRow], token_budget: int, share: Share
) -> tuple[list[tuple[list[int], bool]], int]:
    """Return the batches of the conversations' first half and then the others', and how many are first."""
    plans = [
        [
            ([places[i] for i in members], counts)
            for members, counts in share.of([len(rows[place]) for place in places], token_budget)
        ]
        for places in halves_of(rows)
    ]
    return [*plans[0], *plans[1]], len(plans[0])


def learnable_rows(rows: Sequence[TokenRow], config: TrainConfig) -> tuple[list[tuple[TokenRow, float]], int]:
    """Return the rows of the loss, each with its token weight, and the number of rows without a gradient.

    Turns with an advantage of 0 count in the weights of the others but cost no forward pass.
    """
    written = [row for row in rows if len(row.answer_ids)]
    aggregation: Aggregation = "token" if config.method == "expert_iteration" else config.aggregation
    weights = row_weights([len(row.answer_ids) for row in written], aggregation)
    in_loss = [(row, weight) for row, weight in zip(written, weights, strict=True) if row.kept]
    regularised = config.kl_coefficient > 0 or config.entropy_coefficient > 0
    learnable = [(row, weight) for row, weight in in_loss if row.advantage != 0.0 or regularised]
    return learnable, len(in_loss) - len(learnable)


def _read(
    policy: TorchPolicy, batch: TokenBatch, config: TrainConfig, reference: Reference | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Log-probability and entropy of every target, and its KL term where the loss has one."""
    temperature, has_entropy = config.rollout.sampling.temperature, config.entropy_coefficient > 0
    look = functools.partial(token_logprobs, temperature=temperature, entropy_gradient=has_entropy)
    in_bfloat16 = config.policy.dtype == "bfloat16"
    with (
        computing_in(policy, in_bfloat16),
        computed_again(policy.model, config.policy.gradient_checkpointing),
    ):
        logprobs, entropy = by_token(policy.model, batch, look)
    if not config.kl_coefficient:
        return logprobs, entropy, None
    if reference is None:
        raise ValueError("a KL term needs the reference weights; the trainer keeps them in its store")
    look = functools.partial(token_logprobs, temperature=temperature)
    with torch.no_grad(), computing_in(policy, in_bfloat16), reference() as model:
        reference_logprobs, _ = by_token(model, batch, look)
    return logprobs, entropy, k3(logprobs, reference_logprobs)


def _objective(
    logprobs_B_C: torch.Tensor, old_B_C: torch.Tensor, batch: TokenBatch, config: TrainConfig
) -> Surrogate:
    if config.method == "expert_iteration":
        return imitation(logprobs_B_C)
    return surrogate(logprobs_B_C, old_B_C, batch.advantages_B, config)


def _corrected(policy: TorchPolicy, rows: Sequence[TokenRow], config: TrainConfig, share: Share) -> Corrected:
    """Rows after mismatch rejection; the trainer reads every answer for it, those without advantage too."""
    is_sampled = any(row.sampler_logprobs is not None for row in rows)
    if config.mismatch == MismatchConfig() or not is_sampled:
        return Corrected(list(rows))
    return correct(rows, answer_logprobs(policy, rows, config, share), config.mismatch)


def answer_logprobs(
    policy: TorchPolicy, rows: Sequence[TokenRow], config: TrainConfig, share: Share = ALONE
) -> list[npt.NDArray[np.float32]]:
    """Return the trainer's log-probability of each row's answer tokens, as its update computes them.

    A team shares the reading, and each process has all of them.
    """
    by_row: dict[int, npt.NDArray[np.float32]] = {}
    look = functools.partial(token_logprobs, temperature=config.rollout.sampling.temperature)
    policy.model.eval()
    for members, counts in share.of([len(row) for row in rows], config.minibatch_tokens):
        batch = _collated(policy, [rows[i] for i in members])
        with torch.no_grad(), computing_in(policy, config.policy.dtype == "bfloat16"):
            logprobs, _ = by_token(policy.model, batch, look)
        for i, logprobs_C, mask_C in zip(members, logprobs, batch.mask_B_C, strict=True):
            if counts:
                by_row[i] = logprobs_C[mask_C.bool()].cpu().numpy()
    everybodys = share.gathered(by_row)
    return [everybodys[i] for i in range(len(rows))]


def _collated(
    policy: TorchPolicy, rows: Sequence[TokenRow], weights: Sequence[float] | None = None
) -> TokenBatch:
    return collate(rows, policy.tokenizer.pad_token_id or 0, policy.device, weights)
