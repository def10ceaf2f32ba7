"""Sampling from a causal language model: shared prefixes prefilled once, then one token a step.

Written out instead of `generate` for three reasons. The rollouts of a group share their prompt. Finished
rows leave the batch. Each row has its own stream of random numbers, so its draws do not depend on the other
rows of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from kernel_core.policy.chat_tokens import Drawn, Ids

_COMPACT_BELOW = 0.8
"""Finished rows are dropped from the batch once fewer than this share of it is still writing."""

_SHARED_AT_LEAST = 0.4
"""Neighbouring prompts are prefilled as prefix and rest when they agree on this share of the longer one."""


@dataclass(slots=True)
class _DecodeContext:
    """Decoding state by row: cache, mask of valid positions, and next position."""

    cache: DynamicCache
    mask_B_T: torch.Tensor
    position_B: torch.Tensor
    """The position of the next token, padding not counted."""

    def select(self, rows: torch.Tensor) -> None:
        """Keep, repeat or reorder rows."""
        self.cache.batch_select_indices(rows)
        self.mask_B_T = self.mask_B_T[rows]
        self.position_B = self.position_B[rows]


class _ReservedLayer(DynamicLayer):
    """Keys and values of a layer in buffers with spare capacity, so that a step copies only its own token."""

    keys: Any
    values: Any
    buffers: Any = None
    _room = 64

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Append (B, heads, T, D) along T and give views of everything so far."""
        length = self.get_seq_length()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = length + key_states.shape[-2]
        if length == 0 or self.buffers is None or self.buffers[0].shape[-2] < end:
            self.buffers = tuple(self._grown(x, length, end) for x in (key_states, value_states))
            if length:
                self.buffers[0][:, :, :length] = self.keys
                self.buffers[1][:, :, :length] = self.values
        self.buffers[0][:, :, length:end] = key_states
        self.buffers[1][:, :, length:end] = value_states
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows; the buffers are made anew by the next update."""
        super().batch_select_indices(indices)
        self.buffers = None

    def _grown(self, states: torch.Tensor, length: int, end: int) -> torch.Tensor:
        batch, heads, _, dim = states.shape
        return states.new_empty(batch, heads, end + (self._room if length else 0), dim)


@torch.no_grad()
def decode(
    model: Any,
    prompts: Sequence[Ids],
    *,
    max_new: Sequence[int],
    uniforms_B_T: npt.NDArray[np.float64],
    temperature: float,
    end_ids: Sequence[int],
    pad_id: int,
) -> list[Drawn]:
    """Sample one continuation per prompt, in order.

    `max_new` bounds each row; `uniforms_B_T` in [0, 1) are the row's random numbers, one a token, turned
    into tokens by inverting the cumulative distribution. Temperature 0 takes the likeliest token.
    """
    device = next(model.parameters()).device
    context, logits_B_V = _prefill(model, prompts, pad_id, device)
    num_steps = max(max_new)
    tokens_B_T = torch.full((len(prompts), num_steps), pad_id, dtype=torch.long, device=device)
    logprobs_B_T = torch.zeros((len(prompts), num_steps), dtype=torch.float32, device=device)
    uniforms = torch.from_numpy(uniforms_B_T).to(device)
    limit_B = torch.tensor(list(max_new), device=device)
    ends = torch.tensor(list(end_ids), device=device)
    length_B = limit_B.clone()
    stopped_B = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    row_b = torch.arange(len(prompts), device=device)
    writing_b = limit_B > 0
    for step in range(num_steps):
        token_b, logprob_b = draw(logits_B_V, temperature, uniforms[row_b, step])
        tokens_B_T[row_b, step] = torch.where(writing_b, token_b, pad_id)
        logprobs_B_T[row_b, step] = torch.where(writing_b, logprob_b, 0.0)
        ended_b = writing_b & torch.isin(token_b, ends)
        stopped_B[row_b] |= ended_b
        length_B[row_b[ended_b]] = step + 1
        writing_b = writing_b & ~ended_b & (limit_B[row_b] > step + 1)
        num_writing = int(writing_b.sum())
        if num_writing == 0:
            break
        if num_writing < _COMPACT_BELOW * len(row_b):
            keep = writing_b.nonzero()[:, 0]
            context.select(keep)
            row_b, token_b, writing_b = row_b[keep], token_b[keep], writing_b[keep]
        # A finished row that is still in the batch reads padding, so that it stays within its context.
        logits_B_V = _read(model, context, token_b[:, None], writing_b[:, None].long())
    tokens, logprobs = tokens_B_T.cpu().numpy().astype(np.int32), logprobs_B_T.cpu().numpy()
    return [
        Drawn(tokens[row, :length].copy(), logprobs[row, :length].copy(), stopped)
        for row, (length, stopped) in enumerate(zip(length_B.tolist(), stopped_B.tolist(), strict=True))
    ]


def draw(
    logits_B_V: torch.Tensor, temperature: float, uniform_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row; return it with its log-probability under softmax(logits / temperature).

    At temperature 0 the likeliest token, with its log-probability at temperature 1.
    """
    logprobs_B_V = torch.log_softmax(logits_B_V.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        token_B = logprobs_B_V.argmax(dim=-1)
    else:
        cumulative_B_V = logprobs_B_V.double().exp().cumsum(dim=-1)
        # Scaled to the row's own total, so that rounding can never leave the last token out of reach.
        threshold_B_1 = (uniform_B * cumulative_B_V[:, -1])[:, None]
        token_B = torch.searchsorted(cumulative_B_V, threshold_B_1, right=True)[:, 0]
    return token_B, logprobs_B_V.gather(1, token_B[:, None])[:, 0]


def _prefill(
    model: Any, prompts: Sequence[Ids], pad_id: int, device: torch.device
) -> tuple[_DecodeContext, torch.Tensor]:
    """Read all prompts: what neighbours share once, then the rest of each distinct one.

    Gives the context of every prompt and the logits (B, V) that follow it.
    """
    cache = DynamicCache(config=model.config)
    plain = all(type(layer) is DynamicLayer for layer in cache.layers)
    cache.layers = [_ReservedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]

    distinct, row_of_prompt = _distinct(prompts)
    # A sliding window counts slots: padding between prefix and rest would push real tokens out of it.
    shared_length, group_of_row = _shared_prefixes(distinct) if plain else _nothing_shared(distinct)
    leaders = [group_of_row.index(group) for group in range(len(shared_length))]
    prefixes = [distinct[row][:length] for row, length in zip(leaders, shared_length, strict=True)]
    rests = [prompt[shared_length[group] :] for prompt, group in zip(distinct, group_of_row, strict=True)]

    context = _DecodeContext(
        cache=cache,
        mask_B_T=torch.zeros((len(prefixes), 0), dtype=torch.long, device=device),
        position_B=torch.zeros(len(prefixes), dtype=torch.long, device=device),
    )
    if any(shared_length):
        _read(model, context, *_left_padded(prefixes, pad_id, device))
    context.select(torch.tensor(group_of_row, device=device))
    logits_B_V = _read(model, context, *_left_padded(rests, pad_id, device))
    every = torch.tensor(row_of_prompt, device=device)
    context.select(every)
    return context, logits_B_V[every]


def _read(model: Any, context: _DecodeContext, ids_B_T: torch.Tensor, real_B_T: torch.Tensor) -> torch.Tensor:
    """Feed tokens (with 1 where they are real, 0 where padding) and give the last position's logits."""
    context.mask_B_T = torch.cat([context.mask_B_T, real_B_T], dim=1)
    position_B_T = (context.position_B[:, None] + real_B_T.cumsum(dim=1) - 1).clamp_min(0)
    context.position_B = context.position_B + real_B_T.sum(dim=1)
    output = model(
        input_ids=ids_B_T,
        attention_mask=context.mask_B_T,
        position_ids=position_B_T,
        past_key_values=context.cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1]


def _left_padded(
    sequences: Sequence[Ids], pad_id: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(ids) for ids in sequences)
    ids_B_T = np.full((len(sequences), longest), pad_id, dtype=np.int64)
    real_B_T = np.zeros((len(sequences), longest), dtype=np.int64)
    for row, ids in enumerate(sequences):
        ids_B_T[row, longest - len(ids) :] = ids
        real_B_T[row, longest - len(ids) :] = 1
    return torch.from_numpy(ids_B_T).to(device), torch.from_numpy(real_B_T).to(device)


def _distinct(prompts: Sequence[Ids]) -> tuple[list[Ids], list[int]]:
    """Return the distinct prompts in order of appearance, and each prompt's index among them."""
    index: dict[bytes, int] = {}
    row_of_prompt = [index.setdefault(prompt.tobytes(), len(index)) for prompt in prompts]
    return [np.frombuffer(key, dtype=np.int32) for key in index], row_of_prompt


def _shared_prefixes(prompts: Sequence[Ids]) -> tuple[list[int], list[int]]:
    """Neighbours that begin alike form a group: the length they share, and each prompt's group.

    The last token of every prompt is left out of the shared part, since its logits are wanted.
    """
    lengths: list[int] = []
    group_of_row: list[int] = []
    for row, prompt in enumerate(prompts):
        if row:
            previous = prompts[row - 1]
            reach = min(lengths[-1], len(prompt) - 1)
            differs = np.flatnonzero(previous[:reach] != prompt[:reach])
            shared = int(differs[0]) if len(differs) else reach
            if shared >= _SHARED_AT_LEAST * max(len(prompt), len(previous)):
                lengths[-1] = shared
                group_of_row.append(len(lengths) - 1)
                continue
        lengths.append(len(prompt) - 1)
        group_of_row.append(len(lengths) - 1)
    return lengths, group_of_row


def _nothing_shared(prompts: Sequence[Ids]) -> tuple[list[int], list[int]]:
    return [0] * len(prompts), list(range(len(prompts)))
