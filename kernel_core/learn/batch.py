"""Padded tensors from turns: one row per turn, with loss on the answers only.

Rows are padded on the right, so causal attention needs no mask: no real token ever sees padding. Only the
positions from the shortest prompt on are given to the language-model head. Axes: B rows, T tokens of the
longest row, C answer positions (those that predict a token after the shortest prompt), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One prompt and its answer, as token ids."""

    prompt_ids: Ids
    answer_ids: Ids
    """Includes the end token where the answer has one."""
    advantage: float = 1.0
    sampler_logprobs: npt.NDArray[np.float32] | None = None
    """One value per answer token, from the sampler; None for answers that were not sampled."""
    conversation: int = 0
    """Index of the row's conversation within the step."""
    kept: bool = True
    """True if the row is in the loss: rejection takes rows out and leaves them in returns and baselines."""
    importance: npt.NDArray[np.float32] | None = None
    """Weight of each answer token's objective; None is 1 everywhere."""

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.answer_ids)

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """`importance`, also where it is 1 everywhere."""
        return np.ones(len(self.answer_ids), np.float32) if self.importance is None else self.importance


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows as tensors on the model's device."""

    ids_B_T: torch.Tensor
    targets_B_C: torch.Tensor
    mask_B_C: torch.Tensor
    """1.0 where the target is an answer token."""
    advantages_B: torch.Tensor
    sampler_logprobs_B_C: torch.Tensor
    """0 where masked out, and everywhere for rows without them."""
    importance_B_C: torch.Tensor
    """Weight of each answer token's objective; 1 for rows without any."""
    row_weights_B: torch.Tensor
    """Weight in the loss of a token of each row."""
    num_tokens: int
    """Tokens of prompts and answers, without padding."""
    num_answer_tokens: int
    """Tokens that carry loss."""

    def logits(self, model: Any) -> torch.Tensor:
        """Return the model's logits for every target (B, C, V)."""
        keep = self.targets_B_C.shape[1] + 1
        output = model(input_ids=self.ids_B_T, use_cache=False, logits_to_keep=keep)
        logits: torch.Tensor = output.logits[:, :-1]
        return logits


def plan_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices of rows of similar length, so that rows × longest row stays within the budget.

    Longest first, so that a batch that does not fit into memory fails at once. A row longer than the
    budget is a batch of its own. Ties keep their order: the plan depends on the lengths alone.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        widest = lengths[batches[-1][0]] if batches else 0
        if batches and (len(batches[-1]) + 1) * widest <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def collate(
    rows: Sequence[TokenRow],
    pad_id: int,
    device: torch.device | str,
    row_weights: Sequence[float] | None = None,
) -> TokenBatch:
    """Pad some rows to the longest of them; `row_weights` (1 by default) is what a token of each counts."""
    width = max(len(row) for row in rows)
    first = min(len(row.prompt_ids) for row in rows)
    ids_B_T = np.full((len(rows), width), pad_id, np.int64)
    mask_B_T = np.zeros((len(rows), width), np.float32)
    logprobs_B_T = np.zeros((len(rows), width), np.float32)
    importance_B_T = np.ones((len(rows), width), np.float32)
    for row, ids_T, mask_T, logprobs_T, importance_T in zip(
        rows, ids_B_T, mask_B_T, logprobs_B_T, importance_B_T, strict=True
    ):
        start, end = len(row.prompt_ids), len(row)
        ids_T[:start], ids_T[start:end] = row.prompt_ids, row.answer_ids
        mask_T[start:end] = 1.0
        if row.sampler_logprobs is not None:
            logprobs_T[start:end] = row.sampler_logprobs
        importance_T[start:end] = row.weights
    advantages_B = np.array([row.advantage for row in rows], np.float32)
    ids = torch.from_numpy(ids_B_T).to(device)
    return TokenBatch(
        ids_B_T=ids,
        targets_B_C=ids[:, first:],
        mask_B_C=torch.from_numpy(mask_B_T[:, first:]).to(device),
        advantages_B=torch.from_numpy(advantages_B).to(device),
        sampler_logprobs_B_C=torch.from_numpy(logprobs_B_T[:, first:]).to(device),
        importance_B_C=torch.from_numpy(importance_B_T[:, first:]).to(device),
        row_weights_B=torch.tensor(row_weights or [1.0] * len(rows), dtype=torch.float32, device=device),
        num_tokens=sum(map(len, rows)),
        num_answer_tokens=sum(len(row.answer_ids) for row in rows),
    )
