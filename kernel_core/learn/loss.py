"""The policy-gradient loss: PPO's clipped surrogate with separate bounds and a dual clip.

For a token with ratio r = π(token) / π_old(token) and advantage A:

    J = min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A)          and for A < 0 at least c·A  (dual clip)
    loss = Σ over tokens of (−u·J + β·k3 − α·entropy) · row weight

u is the token's importance weight (1 without mismatch correction, see `mismatch.py`). The row weight is what
`aggregation` makes of the sum over all tokens of all turns, of which those left out of the loss add 0:

| `aggregation` | row weight                  | as in                                                        |
|---------------|-----------------------------|--------------------------------------------------------------|
| `constant`    | 1 / (turns × 512)           | Dr. GRPO, Dr. Kernel: a long wrong answer is not let off     |
|               |                             | lightly, and the gradient's estimate stays unbiased          |
| `token`       | 1 / (tokens of the step)    | DAPO: the same up to a factor that depends on the answers    |
| `turn`        | 1 / (turns × its tokens)    | GRPO: every turn weighs the same, so tokens of long ones less|

k3 = exp(d) − d − 1 with d = log π_ref − log π is Schulman's non-negative, unbiased estimate of
KL(π ‖ π_ref) on tokens drawn from π.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from kernel_core.config import TrainConfig

Aggregation = Literal["constant", "token", "turn"]
USUAL_TOKENS = 512
"""Divisor of `constant`, in tokens.

As published it is the longest answer that is allowed, so that the gradient would be an eighth where
`max_new_tokens` is 4096, whatever was written.
"""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Clipped objective of each token, with its diagnostics."""

    objective_B_C: torch.Tensor
    ratio_B_C: torch.Tensor
    clipped_B_C: torch.Tensor
    """True where a bound holds, so that the token has no gradient."""


def token_logprobs(
    logits: torch.Tensor, targets: torch.Tensor, temperature: float, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each target (...) and entropy in nats of each distribution, of logits (..., V).

    Under softmax(logits / temperature) in float32 or better: the distribution that was sampled. Without
    `entropy_gradient` the entropy is a measurement only, and its graph is not kept.
    """
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    logprobs = torch.log_softmax(scaled, dim=-1)
    kept = logprobs if entropy_gradient else logprobs.detach()
    entropy = -(kept.exp() * kept).sum(dim=-1)
    return logprobs.gather(-1, targets[..., None])[..., 0], entropy


def surrogate(
    logprobs_B_C: torch.Tensor,
    old_logprobs_B_C: torch.Tensor,
    advantages_B: torch.Tensor,
    config: TrainConfig,
) -> Surrogate:
    """Return the clipped objective of each token."""
    advantage = advantages_B[:, None]
    ratio = torch.exp(logprobs_B_C - old_logprobs_B_C)
    unclipped = ratio * advantage
    bounded = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * advantage
    pessimistic = torch.minimum(unclipped, bounded)
    floor = config.dual_clip * advantage
    objective = torch.where(advantage < 0, torch.maximum(pessimistic, floor), pessimistic)
    clipped = (bounded < unclipped) | ((advantage < 0) & (pessimistic < floor))
    return Surrogate(objective, ratio.detach(), clipped)


def imitation(logprobs_B_C: torch.Tensor) -> Surrogate:
    """Return the objective of supervised learning, log π: the loss is the cross entropy of the answer."""
    ratio_B_C = torch.ones_like(logprobs_B_C)
    return Surrogate(logprobs_B_C, ratio_B_C, torch.zeros_like(ratio_B_C, dtype=torch.bool))


def k3(logprobs_B_C: torch.Tensor, reference_logprobs_B_C: torch.Tensor) -> torch.Tensor:
    """Return the k3 estimate of KL(π ‖ π_ref) of each token; never negative."""
    difference = reference_logprobs_B_C - logprobs_B_C
    return torch.exp(difference) - difference - 1.0


def row_weights(lengths: Sequence[int], aggregation: Aggregation) -> list[float]:
    """Return the weight of a token of each row, given the answer lengths of all rows, in the loss or not.

    An empty row counts nothing.
    """
    match aggregation:
        case "constant":
            return [1.0 / (len(lengths) * USUAL_TOKENS) for _ in lengths]
        case "token":
            return [1.0 / max(1, sum(lengths))] * len(lengths)
        case "turn":
            return [1.0 / (len(lengths) * length) if length else 0.0 for length in lengths]


def summed_loss(
    objective_B_C: torch.Tensor,
    entropy_B_C: torch.Tensor,
    kl_B_C: torch.Tensor | None,
    mask_B_C: torch.Tensor,
    config: TrainConfig,
) -> torch.Tensor:
    """Sum the loss over answer tokens, each weighted by its value in `mask_B_C` (0 for all others)."""
    loss_B_C = -objective_B_C
    if config.entropy_coefficient:
        loss_B_C = loss_B_C - config.entropy_coefficient * entropy_B_C
    if kl_B_C is not None:
        loss_B_C = loss_B_C + config.kl_coefficient * kl_B_C
    return (loss_B_C * mask_B_C).sum()
