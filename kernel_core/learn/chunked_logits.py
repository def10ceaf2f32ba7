"""Per-token statistics of logits, without holding all logits of a batch at once.

With a vocabulary of 150,000 the logits of one token take 600 kB in float32, and several times that while
gradients are computed. Where a batch has too many, the head (the last linear map) gives what is wanted of
its logits and not the logits. It makes them for some answer tokens at a time, and again for their gradient;
padding and prompts cost nothing there. This takes place in the model's own pass, where the weights of a
sharded model are together. Models that do more to logits than their head does (a cap, a scale) are found by
trying and left alone.

Logits are in float32, also those of a model that computes in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint

from kernel_core.learn.batch import TokenBatch
from kernel_core.policy.fast_decode.patched_modules import lent
from kernel_core.policy.wide_head import logits_of, wide_logits

Look = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Maps logits (..., V) and targets (...) to some values for each token (...)."""
LOGITS_BYTES = 2 << 30
"""Limit for the float32 logits of a whole batch; above it they are computed in chunks."""
PART_BYTES = 256 << 20

_PLAIN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def by_token(model: Any, batch: TokenBatch, look: Look) -> tuple[torch.Tensor, ...]:
    """Return `look`'s result for each target of a batch (B, C), possibly 0 where no answer token is."""
    head = model.get_output_embeddings()
    is_large = isinstance(head, torch.nn.Linear) and (
        4 * batch.targets_B_C.numel() * head.out_features > LOGITS_BYTES
    )
    # Processes with batches of their own try a sharded model's head together, before the first one needs to.
    is_tried = is_large or isinstance(model, FSDPModule)
    is_whole = is_tried and is_whole_head(head, model, batch.ids_B_T.device)
    if is_large and is_whole:
        return _in_parts(model, head, batch, look)
    with wide_logits(model):
        logits_B_C_V = batch.logits(model)
    return look(logits_B_C_V, batch.targets_B_C)


def _in_parts(model: Any, head: Any, batch: TokenBatch, look: Look) -> tuple[torch.Tensor, ...]:
    is_answer_B_C = batch.mask_B_C.bool()
    targets_N = batch.targets_B_C[is_answer_B_C]
    part = max(1, PART_BYTES // (4 * head.out_features))

    def look_at(hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return look(logits_of(head, hidden), targets)

    def looked_at(hidden_B_C_H: torch.Tensor) -> torch.Tensor:
        hidden_N_H = hidden_B_C_H[:, :-1][is_answer_B_C]
        parts: list[tuple[torch.Tensor, ...]] = [
            checkpoint(look_at, hidden, targets, use_reentrant=False)
            for hidden, targets in zip(hidden_N_H.split(part), targets_N.split(part), strict=True)
        ]
        joined = map(torch.cat, zip(*parts, strict=True))
        spread = [
            values.new_zeros(is_answer_B_C.shape).masked_scatter(is_answer_B_C, values) for values in joined
        ]
        return F.pad(torch.stack(spread, dim=-1), (0, 0, 0, 1))  # as many positions as the head was given

    with lent([(head, looked_at)]):
        return batch.logits(model).unbind(-1)


def is_whole_head(head: Any, model: Any, device: torch.device) -> bool:
    """Return True if the head alone makes the logits; all processes of a sharded model ask together."""
    if head not in _PLAIN:
        given = []

        def noting(hidden: torch.Tensor) -> torch.Tensor:
            given.append(type(head).forward(head, hidden))
            return given[0]

        ids = torch.arange(4, device=device)[None]
        with torch.no_grad(), lent([(head, noting)]):
            logits = model(input_ids=ids, use_cache=False).logits
        _PLAIN[head] = torch.equal(given[0], logits)
    return _PLAIN[head]
