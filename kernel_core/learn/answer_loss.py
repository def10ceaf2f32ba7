"""Cross-entropy of answer tokens from hidden states, a part of the vocabulary's logits at a time.

The logits of 16,000 tokens over 152,000 entries are 10 GB in float32. Here a part of them is made, becomes
its own gradient at once and let go, so nothing is computed again in the backward pass. The method is that of
the fused linear cross-entropy of Liger Kernel (arXiv:2410.10989), with PyTorch's operators.
Logits are in float32 also where the factors are bfloat16. Axes: N answer tokens, H hidden size, V vocabulary.

A `floor` stops the training of tokens that are known well enough: one with a smaller cross-entropy has no
gradient, so its probability is not driven to 1 and the policy keeps alternatives that it finds likely.
Uniform label smoothing would raise all 152,000 entries instead, most of which end a kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from kernel_core.learn.chunked_logits import is_whole_head
from kernel_core.learn.packing import Pack
from kernel_core.policy.fast_decode.patched_modules import lent

PART_BYTES = 1 << 30
"""Most bytes of float32 logits at a time."""


def has_plain_head(model: Any) -> bool:
    """Return True if the model's logits are one matrix product, which `packed_loss` takes apart."""
    head = model.get_output_embeddings()
    device = next(model.parameters()).device
    is_linear = type(head) is torch.nn.Linear and head.bias is None
    return is_linear and is_whole_head(head, model, device)


def floored(losses: torch.Tensor, floor: float) -> torch.Tensor:
    """Return the cross-entropies of some tokens in nats; those up to `floor` have no gradient."""
    return torch.where(losses > floor, losses, losses.detach()) if floor else losses


def packed_loss(model: Any, pack: Pack, floor: float = 0.0) -> torch.Tensor:
    """Cross-entropy in nats, summed over the answer tokens of a pack, with the gradient of `floored`.

    It is computed in the head's place, where a sharded model has the head's weights together.
    """
    head = model.get_output_embeddings()

    def summed(hidden_1_T_H: torch.Tensor) -> torch.Tensor:
        hidden_N_H = hidden_1_T_H[0].index_select(0, pack.predicting_N)
        weight = head.weight if torch.is_grad_enabled() else head.weight.detach()
        loss: torch.Tensor = _SummedLoss.apply(hidden_N_H, weight, pack.targets_N, floor)
        return loss

    with lent([(head, summed)]):
        return pack.logits(model)


class _SummedLoss(torch.autograd.Function):
    """Summed loss; gradients are computed in the forward pass for an incoming gradient of 1, then scaled."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_N_H: torch.Tensor,
        weight_V_H: torch.Tensor,
        targets_N: torch.Tensor,
        floor: float,
    ) -> torch.Tensor:
        kind = hidden_N_H.device.type
        low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_N_H.dtype
        hidden, weight = hidden_N_H.to(low), weight_V_H.to(low)
        wide = torch.promote_types(low, torch.float32)
        wants_hidden, wants_weight, *_ = ctx.needs_input_grad
        hidden_grad = torch.empty_like(hidden) if wants_hidden else None
        weight_grad = torch.zeros_like(weight, dtype=wide) if wants_weight else None
        loss = torch.zeros((), dtype=wide, device=hidden.device)
        size = max(1, PART_BYTES // (4 * len(weight)))
        for start in range(0, len(hidden), size):
            part, targets = hidden[start : start + size], targets_N[start : start + size]
            logits = _product(part, weight.T, wide)
            norms = logits.logsumexp(dim=1, keepdim=True)
            losses = norms - logits.gather(1, targets[:, None])
            loss += losses.sum()
            if not (wants_hidden or wants_weight):
                continue
            logits.sub_(norms).exp_()
            logits[torch.arange(len(part), device=part.device), targets] -= 1.0
            if floor:
                logits.mul_(losses > floor)
            slope = logits.to(low)
            if hidden_grad is not None:
                hidden_grad[start : start + size] = slope @ weight
            if weight_grad is not None:
                weight_grad += _product(slope.T, part, wide)
        ctx.save_for_backward(hidden_grad, weight_grad)
        ctx.dtypes = hidden_N_H.dtype, weight_V_H.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        hidden_grad, weight_grad = ctx.saved_tensors
        hidden_dtype, weight_dtype = ctx.dtypes
        gradient = gradients[0]
        if hidden_grad is not None:
            hidden_grad = hidden_grad.to(hidden_dtype) * gradient  # a number alone keeps its own precision
        if weight_grad is not None:
            weight_grad = weight_grad.mul_(gradient).to(weight_dtype)
        return hidden_grad, weight_grad, None, None


def _product(left: torch.Tensor, right: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    """Accumulated and kept in `wide`; on a CPU half-precision products are rounded in between."""
    if left.dtype == wide:
        return left @ right
    with torch.autocast(left.device.type, enabled=False):
        if left.is_cuda:
            return torch.mm(left, right, out_dtype=wide)
        return (left @ right).to(wide)
