"""What an update wants to know of every answer token, without all logits of a batch at once.

With a vocabulary of 150,000 the logits of one token take 600 kB in float32, and several times that while
gradients are computed. Where a batch has too many, the head (the last linear map) is left out of the model's
own pass. It is applied to some answer tokens at a time, and again for their gradient; padding and prompts
cost nothing there. Models that do more to logits than their head does (a cap, a scale) are found by trying
and left alone. So are sharded models: their weights are together only inside their own pass.

Logits are in float32, also those of a model that computes in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint

from kernel_core.learn.batch import Batch
from kernel_core.policy.fast_decode.patched_modules import lent
from kernel_core.policy.wide_head import wide, wide_logits

Look = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Maps logits (..., V) and targets (...) to some values for each token (...)."""
LOGITS_BYTES = 2 << 30
"""In float32, of a whole batch: more are made a part at a time."""
PART_BYTES = 256 << 20

_PLAIN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def by_token(model: Any, batch: Batch, look: Look) -> tuple[torch.Tensor, ...]:
    """What `look` gives for each target of a batch (B, C); 0, maybe, where no answer token is."""
    head = model.get_output_embeddings()
    if (
        not isinstance(head, torch.nn.Linear)
        or isinstance(model, FSDPModule)
        or 4 * batch.targets_B_C.numel() * head.out_features <= LOGITS_BYTES
        or not is_whole_head(head, model, batch.ids_B_T.device)
    ):
        with wide_logits(model):
            logits_B_C_V = batch.logits(model)
        return look(logits_B_C_V, batch.targets_B_C)
    return _in_parts(model, head, batch, look)


def _in_parts(model: Any, head: Any, batch: Batch, look: Look) -> tuple[torch.Tensor, ...]:
    with head_left_out(head):
        hidden_B_C_H = batch.logits(model)
    is_answer_B_C = batch.mask_B_C.bool()
    hidden_N_H, targets_N = hidden_B_C_H[is_answer_B_C], batch.targets_B_C[is_answer_B_C]
    part = max(1, PART_BYTES // (4 * head.out_features))

    def look_at(hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with wide(head):
            logits = head(hidden)
        return look(logits, targets)

    parts: list[tuple[torch.Tensor, ...]] = [
        checkpoint(look_at, hidden, targets, use_reentrant=False)
        for hidden, targets in zip(hidden_N_H.split(part), targets_N.split(part), strict=True)
    ]
    return tuple(_spread(torch.cat(values), is_answer_B_C) for values in zip(*parts, strict=True))


def _spread(values_N: torch.Tensor, is_answer_B_C: torch.Tensor) -> torch.Tensor:
    return values_N.new_zeros(is_answer_B_C.shape).masked_scatter(is_answer_B_C, values_N)


def head_left_out(head: Any) -> AbstractContextManager[None]:
    """The model gives what it would give its head."""
    return lent([(head, lambda hidden: hidden)])


def is_whole_head(head: Any, model: Any, device: torch.device) -> bool:
    """Whether the model's logits are what its head gives."""
    if head not in _PLAIN:
        ids = torch.arange(4, device=device)[None]
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits
            with head_left_out(head):
                hidden = model(input_ids=ids, use_cache=False).logits
            _PLAIN[head] = bool(torch.equal(head(hidden), logits))
    return _PLAIN[head]
