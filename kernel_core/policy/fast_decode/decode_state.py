"""What a step of `static_decode` works on: keys and values in fixed slots, rows and how far they are, and its
attention.

Axes: B rows, N new tokens, D a head's width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

ATTENTION = "one_token_a_row"
"""Under this name transformers knows the attention of a step."""


class SlotLayer(DynamicLayer):
    """A layer's keys and values in fixed slots; one token a row is written at the row's own position."""

    keys: Any
    values: Any

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, position_B: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self._slot_B_1_1_1 = position_B[:, None, None, None]
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Write (B, heads, 1, D) at each row's slot and give every slot."""
        for slots, states in ((self.keys, key_states), (self.values, value_states)):
            index = self._slot_B_1_1_1.expand(-1, states.shape[1], 1, states.shape[3])
            slots.scatter_(2, index, states.to(slots.dtype))
        return self.keys, self.values


@dataclass(frozen=True, slots=True)
class DecodeState:
    """What a step reads and changes, a row each; sliced to the rows in use, never moved."""

    token_B: torch.Tensor
    position_B: torch.Tensor
    """Slot of `token_B`, which is also its position."""
    count_B: torch.Tensor
    """Tokens drawn so far."""
    limit_B: torch.Tensor
    writing_B: torch.Tensor
    stopped_B: torch.Tensor
    uniforms_B_N: torch.Tensor
    tokens_B_N: torch.Tensor
    logprobs_B_N: torch.Tensor

    def first(self, rows: int) -> DecodeState:
        """Views of the first rows."""
        return DecodeState(*(tensor[:rows] for tensor in self.tensors))

    def keep(self, rows: torch.Tensor) -> None:
        """Move these rows to the front."""
        for tensor in self.tensors:
            tensor[: len(rows)] = tensor[rows]
            tensor[len(rows) :] = 0

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All of them, in the order of the fields."""
        return (
            self.token_B,
            self.position_B,
            self.count_B,
            self.limit_B,
            self.writing_B,
            self.stopped_B,
            self.uniforms_B_N,
            self.tokens_B_N,
            self.logprobs_B_N,
        )


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **_: Any
) -> tuple[torch.Tensor, None]:
    """Attention of one query token a row (B, heads, 1, D), without repeating keys for the query heads.

    The query heads that share a key head stand as rows of one product, so keys and values are read once.
    """
    batch, heads, _one, _ = query.shape
    packed = query.reshape(batch, key.shape[1], heads // key.shape[1], query.shape[3])
    attended = F.scaled_dot_product_attention(packed, key, value, attn_mask=attention_mask, scale=scaling)
    return attended.reshape(batch, 1, heads, value.shape[3]), None


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


@contextmanager
def attending(model: Any) -> Iterator[None]:
    """The model with the attention of a step."""
    usual = model.config._attn_implementation
    model.config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = usual
