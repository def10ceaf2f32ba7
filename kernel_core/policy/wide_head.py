"""Logits in float32 from a model that computes in half precision.

Rounded to bfloat16, a logit of 20 is off by 0.03 on average, and so are log-probabilities: that alone sets
sampler and trainer apart. Products of two bfloat16 numbers are exact in float32, so it is enough to keep the
head's sums there. Hidden states and weights stay as they are, and nothing is copied on a GPU.

Axes: N tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from kernel_core.policy.fast_decode.patched_modules import lent


def wide_logits(model: Any) -> AbstractContextManager[None]:
    """Run the model with a head that returns float32."""
    return wide(model.get_output_embeddings())


def wide(head: Any) -> AbstractContextManager[None]:
    """Return a head that gives float32; one that is no plain linear map stays as it is."""
    if type(head) is not torch.nn.Linear:
        return nullcontext()
    return lent([(head, functools.partial(_logits, head))])


def logits_of(head: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return the logits of hidden states, in float32 from a plain linear map, whatever its present
    `forward`."""
    logits: torch.Tensor = (
        _logits(head, hidden) if type(head) is torch.nn.Linear else type(head).forward(head, hidden)
    )
    return logits


def _logits(head: torch.nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
    """Logits (..., V) of hidden states (..., H), in float32 or better."""
    low = _product_dtype(hidden)
    if low not in (torch.bfloat16, torch.float16):
        return F.linear(hidden, head.weight, head.bias)
    product: torch.Tensor = _WideProduct.apply(hidden.flatten(0, -2), head.weight, low)
    if head.bias is not None:
        product = product + head.bias.float()
    return product.unflatten(0, hidden.shape[:-1])


class _WideProduct(torch.autograd.Function):
    """hidden · weightᵀ with float32 sums; its gradients are products of the same kind."""

    @staticmethod
    def forward(
        ctx: Any, hidden_N_H: torch.Tensor, weight_V_H: torch.Tensor, low: torch.dtype
    ) -> torch.Tensor:
        ctx.save_for_backward(hidden_N_H, weight_V_H)
        ctx.low = low
        return _product(hidden_N_H.to(low), weight_V_H.to(low).T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        hidden, weight = ctx.saved_tensors
        slope_N_V = gradients[0].to(ctx.low)
        wants_hidden, wants_weight, _ = ctx.needs_input_grad
        hidden_grad = _product(slope_N_V, weight.to(ctx.low)).to(hidden.dtype) if wants_hidden else None
        weight_grad = _product(slope_N_V.T, hidden.to(ctx.low)).to(weight.dtype) if wants_weight else None
        return hidden_grad, weight_grad, None


def _product_dtype(hidden: torch.Tensor) -> torch.dtype:
    """Return the type of a matrix product: autocast's where that is on."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply two half-precision matrices into float32."""
    with torch.autocast(left.device.type, enabled=False):
        if left.is_cuda:
            return torch.mm(left, right, out_dtype=torch.float32)
        return left.float() @ right.float()
