"""State of a decoding step of `graph_decoder`: slotted keys and values, row positions, and attention.

Axes: B rows, N new tokens, D a head's width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from kernel_core.policy.chat_tokens import Drawn, Ids

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
    """Tensors that a step reads and changes, one entry per row; sliced to the rows in use, never moved."""

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

    @classmethod
    def empty(cls, num_rows: int, num_new: int, device: torch.device) -> DecodeState:
        """Room for rows of new tokens; none writes."""
        integers = [torch.zeros(num_rows, dtype=torch.long, device=device) for _ in range(4)]
        flags = [torch.zeros(num_rows, dtype=torch.bool, device=device) for _ in range(2)]
        kinds = torch.float64, torch.long, torch.float32
        return cls(
            *integers, *flags, *(torch.zeros(num_rows, num_new, dtype=kind, device=device) for kind in kinds)
        )

    def begin(
        self, prompts: Sequence[Ids], max_new: Sequence[int], uniforms_B_T: npt.NDArray[np.float64]
    ) -> None:
        """Start these prompts in the first rows, each from its last token on; the other rows write
        nothing."""
        for tensor in self.tensors:
            tensor.zero_()
        device, count = self.token_B.device, len(prompts)
        limits = torch.tensor(list(max_new), device=device)
        self.token_B[:count] = torch.tensor([int(prompt[-1]) for prompt in prompts], device=device)
        self.position_B[:count] = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
        self.limit_B[:count] = limits
        self.writing_B[:count] = limits > 0
        self.uniforms_B_N[:count, : uniforms_B_T.shape[1]] = torch.from_numpy(uniforms_B_T).to(device)

    @property
    def uniform_B(self) -> torch.Tensor:
        """Return the random number of each row's next token."""
        return self.uniforms_B_N.gather(1, self._index_B_1)[:, 0]

    @property
    def _index_B_1(self) -> torch.Tensor:
        return self.count_B.clamp(max=self.uniforms_B_N.shape[1] - 1)[:, None]

    def write(self, token_B: torch.Tensor, logprob_B: torch.Tensor, ends: torch.Tensor) -> None:
        """Add the tokens drawn to the rows that still write; an end token or the limit ends a row."""
        index_B_1, writing_B = self._index_B_1, self.writing_B
        for written_B_N, drawn_B in ((self.tokens_B_N, token_B), (self.logprobs_B_N, logprob_B)):
            before_B_1 = written_B_N.gather(1, index_B_1)
            written_B_N.scatter_(1, index_B_1, torch.where(writing_B[:, None], drawn_B[:, None], before_B_1))
        ended_B = writing_B & (token_B[:, None] == ends).any(dim=1)
        self.count_B.add_(writing_B)
        self.position_B.add_(writing_B)
        self.token_B.copy_(torch.where(writing_B, token_B, self.token_B))
        self.stopped_B.logical_or_(ended_B)
        writing_B.logical_and_(~ended_B & (self.count_B < self.limit_B))

    def read(self, rows: npt.NDArray[np.int64]) -> list[Drawn]:
        """Return the output of these rows."""
        picked = torch.from_numpy(rows).to(self.token_B.device)
        counts = self.count_B[picked].tolist()
        tokens = self.tokens_B_N[picked].cpu().numpy().astype(np.int32)
        logprobs = self.logprobs_B_N[picked].cpu().numpy()
        return [
            Drawn(tokens[i, :count].copy(), logprobs[i, :count].copy(), stopped)
            for i, (count, stopped) in enumerate(zip(counts, self.stopped_B[picked].tolist(), strict=True))
        ]

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
        """Return all tensors, in the order of the fields."""
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
    """Run the model with the attention of a decoding step."""
    usual = model.config._attn_implementation
    model.config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = usual
