"""Rows without padding: one after another in one sequence, and attention that stays inside each row.

Positions begin at 0 in every row. On CUDA in half precision the attention is PyTorch's own for sequences of
various lengths; elsewhere each row has a call of its own. Whether a model can be read this way is tried once:
models with sliding windows, attention sinks, capped scores or a recurrent state cannot, and keep padded rows.
Axes: B rows, T tokens of all rows together, N answer tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from kernel_core.learn.batch import TokenRow

log = logging.getLogger(__name__)

NAME = "packed_rows"
"""The name of this attention in the registry of transformers."""
CLOSE = 0.05
"""Relative tolerance between a packed row and the same row alone; it covers rounding in bfloat16."""


Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Query, key and value, (1, heads, T, size) each."""
_KERNEL: Callable[..., Any] = varlen_attn
_OPTIONS = frozenset(inspect.signature(_KERNEL).parameters)


class CannotPackError(Exception):
    """Raised where attention is more than causal attention inside each row."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Rows as one sequence on the model's device."""

    ids_1_T: torch.Tensor
    positions_1_T: torch.Tensor
    """Position of each token in its own row."""
    starts: torch.Tensor
    """Offsets of the rows in the sequence, and the end of the last: B + 1 numbers (int32)."""
    longest: int
    """Tokens of the longest row."""
    predicting_N: torch.Tensor
    """Indices of the tokens after which an answer token comes."""
    targets_N: torch.Tensor
    """These answer tokens."""

    @property
    def num_tokens(self) -> int:
        """Tokens of prompts and answers."""
        return self.ids_1_T.shape[1]

    def logits(self, model: Any) -> torch.Tensor:
        """Return the model's output at every token (1, T, V), or that of the replaced head."""
        logits: torch.Tensor = model(
            input_ids=self.ids_1_T,
            position_ids=self.positions_1_T,
            use_cache=False,
            cu_seq_lens_q=self.starts,
            cu_seq_lens_k=self.starts,
            max_length_q=self.longest,
            max_length_k=self.longest,
        ).logits
        return logits


def plan_packs(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices of rows in their order, as many together as the budget holds; a longer row stands alone."""
    packs: list[list[int]] = []
    filled = 0
    for index, length in enumerate(lengths):
        if packs and filled + length <= token_budget:
            packs[-1].append(index)
            filled += length
        else:
            packs.append([index])
            filled = length
    return packs


def pack(rows: Sequence[TokenRow], device: torch.device | str) -> Pack:
    """Concatenate the rows; copies to a GPU are asynchronous."""
    lengths = [len(row) for row in rows]
    starts = np.cumsum([0, *lengths])
    predicting = [
        np.arange(start + len(row.prompt_ids), start + len(row)) - 1
        for start, row in zip(starts[:-1], rows, strict=True)
    ]
    ids = np.concatenate([part for row in rows for part in (row.prompt_ids, row.answer_ids)])
    return Pack(
        ids_1_T=_on(device, ids.astype(np.int64))[None],
        positions_1_T=_on(device, np.concatenate([np.arange(n) for n in lengths]))[None],
        starts=_on(device, starts.astype(np.int32)),
        longest=max(lengths),
        predicting_N=_on(device, np.concatenate(predicting)),
        targets_N=_on(device, np.concatenate([row.answer_ids for row in rows]).astype(np.int64)),
    )


def _on(device: torch.device | str, values: np.ndarray[Any, Any]) -> torch.Tensor:
    tensor = torch.from_numpy(values)
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Let the model's attention take packed rows until the block ends; backward passes belong inside it."""
    bare = model.get_base_model() if hasattr(model, "peft_config") else model
    before = bare.config._attn_implementation
    bare.set_attn_implementation(NAME)
    try:
        yield
    finally:
        bare.set_attn_implementation(before)


def can_pack(model: Any) -> bool:
    """Return True if the model reads a packed row as it reads that row alone, tried on a few tokens."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return _reads_rows_alone(model, device)
    except (CannotPackError, TypeError, ValueError) as error:
        log.info("rows are padded: %s cannot read packed rows (%s)", type(model).__name__, error)
        return False
    finally:
        model.train(was_training)


def _reads_rows_alone(model: Any, device: torch.device) -> bool:
    first, alternative, second = (
        TokenRow(np.asarray(ids, np.int32), np.asarray([1], np.int32))
        for ids in ([1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [6, 7, 8, 7, 6, 8])
    )
    with packed_attention(model):
        logits, changed = (
            pack([before, second], device).logits(model)[0, len(before) :] for before in (first, alternative)
        )
    alone = model(input_ids=pack([second], device).ids_1_T, use_cache=False).logits[0]
    is_alone = torch.equal(logits, changed)
    is_same = bool((logits - alone).float().norm() <= CLOSE * alone.float().norm())
    if not (is_alone and is_same):
        log.info("rows are padded: %s does not keep packed rows apart", type(model).__name__)
    return is_alone and is_same


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention with transformers' interface: (1, heads, T, size) in, (1, T, heads, size) out."""
    unsupported = [
        name for name in ("sliding_window", "softcap", "s_aux", "position_bias") if more.get(name) is not None
    ]
    if unsupported or cu_seq_lens_q is None or max_length_q is None or attention_mask is not None:
        raise CannotPackError(f"its attention wants {', '.join(unsupported) or 'a mask'}")
    if torch.is_autocast_enabled(query.device.type):
        low = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(low), key.to(low), value.to(low)
    parts = (query, key, value)
    if _has_kernel(query, scaling, dropout):
        return _by_kernel(parts, scaling, cu_seq_lens_q, max_length_q), None
    return _row_by_row(parts, scaling, dropout, cu_seq_lens_q), None


def _has_kernel(query: torch.Tensor, scaling: float | None, dropout: float) -> bool:
    is_scaled = "scale" in _OPTIONS or scaling in (None, query.shape[-1] ** -0.5)
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    return query.is_cuda and is_half and is_scaled and not dropout


def _by_kernel(parts: Parts, scaling: float | None, starts: torch.Tensor, longest: int) -> torch.Tensor:
    """Arguments differ between releases of torch: causal by a flag or a window, with a scale or without."""
    options: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in _OPTIONS else {"is_causal": True}
    if "scale" in _OPTIONS:
        options["scale"] = scaling
    query, key, value = parts
    groups = query.shape[1] // key.shape[1]
    if "enable_gqa" in _OPTIONS:
        options["enable_gqa"] = groups > 1
    elif groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    query, key, value = (part[0].transpose(0, 1).contiguous() for part in (query, key, value))
    out: torch.Tensor = _KERNEL(query, key, value, starts, starts, longest, longest, **options)
    return out[None]


def _row_by_row(parts: Parts, scaling: float | None, dropout: float, starts: torch.Tensor) -> torch.Tensor:
    lengths = starts.diff().tolist()
    attend: Callable[..., torch.Tensor] = F.scaled_dot_product_attention
    rows = [
        attend(*row, is_causal=True, scale=scaling, dropout_p=dropout, enable_gqa=True)
        for row in zip(*(part.split(lengths, dim=2) for part in parts), strict=True)
    ]
    return torch.cat(rows, dim=2).transpose(1, 2)


AttentionInterface.register(NAME, _attention)
