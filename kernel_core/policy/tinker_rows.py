"""Rows as Tinker's client sends them, and what comes back for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernel_core.errors import SourceUnavailable
from kernel_core.policy.chat_tokens import Ids
from kernel_core.policy.remote_model import Answered, Floats, Weighted


def scaled(weights: Floats, length: int, num_rows: int, *, sums: bool) -> Floats:
    """Scale a row's weights so that the server's loss is their sum over the batch."""
    return weights if sums else (weights * np.float32(length * num_rows)).astype(np.float32)


def zeros(count: int) -> tuple[Floats, Floats]:
    """Log-probabilities and weights of an answer that is only read."""
    return np.zeros(count, np.float32), np.zeros(count, np.float32)


def num_targets(row: Answered | Weighted) -> int:
    """Tokens that a row predicts, its prompt's included."""
    return len(row.prompt_ids) + len(row.answer_ids) - 1


def datum(prompt_ids: Ids, answer_ids: Ids, old_logprobs: Floats, weights: Floats) -> Any:
    """Build a row for the client: each position predicts the next token, prompt tokens have weight 0."""
    from tinker import types

    ids = np.concatenate([prompt_ids, answer_ids])
    before = np.zeros(len(prompt_ids) - 1, np.float32)
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1].tolist()),
        loss_fn_inputs={
            "target_tokens": ids[1:].astype(np.int64),
            "logprobs": np.concatenate([before, old_logprobs]),
            "advantages": np.concatenate([before, weights]),
        },
    )


def answer_logprobs(output: Any, rows: Sequence[Answered | Weighted]) -> list[Floats]:
    """Return each answer's log-probabilities from an output, which covers every position of every row."""
    logprobs = [np.asarray(fields["logprobs"].data, np.float32) for fields in output.loss_fn_outputs]
    if [len(values) for values in logprobs] != [num_targets(row) for row in rows]:
        raise SourceUnavailable("the server answered with log-probabilities of other rows than were sent")
    return [values[len(row.prompt_ids) - 1 :] for values, row in zip(logprobs, rows, strict=True)]
