"""Rows as a few arrays: other processes have thousands of small objects much later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernel_core.learn.batch import Row

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows, one after the other; a value that only some rows have comes with the rows that have it."""

    prompts: tuple[Array, Array]
    """Lengths, and the ids of all."""
    answers: tuple[Array, Array]
    advantages: Array
    conversations: Array
    kept: Array
    sampler_logprobs: tuple[Array, Array]
    """The rows that have them, and the numbers of all; as many a row as its answer has tokens."""
    importance: tuple[Array, Array]

    @classmethod
    def wrap(cls, rows: Sequence[Row]) -> Parcel:
        """Nothing of a row is lost."""
        return cls(
            prompts=_joined([row.prompt_ids for row in rows]),
            answers=_joined([row.answer_ids for row in rows]),
            advantages=np.array([row.advantage for row in rows], np.float64),
            conversations=np.array([row.conversation for row in rows], np.int64),
            kept=np.array([row.kept for row in rows], np.bool_),
            sampler_logprobs=_joined_where_there([row.sampler_logprobs for row in rows]),
            importance=_joined_where_there([row.importance for row in rows]),
        )

    def unwrap(self) -> list[Row]:
        """The rows; their arrays are parts of the parcel's."""
        prompts, answers = _split(*self.prompts), _split(*self.answers)
        lengths = self.answers[0]
        logprobs, importance = (
            _split_where_there(*one, lengths) for one in (self.sampler_logprobs, self.importance)
        )
        numbers = zip(self.advantages.tolist(), self.conversations.tolist(), self.kept.tolist(), strict=True)
        return [
            Row(
                prompts[at],
                answers[at],
                advantage=advantage,
                sampler_logprobs=logprobs[at],
                conversation=conversation,
                kept=kept,
                importance=importance[at],
            )
            for at, (advantage, conversation, kept) in enumerate(numbers)
        ]


def _joined(arrays: Sequence[Array]) -> tuple[Array, Array]:
    lengths = np.array([len(array) for array in arrays], np.int64)
    return lengths, np.concatenate(arrays) if arrays else np.zeros(0, np.int32)


def _joined_where_there(arrays: Sequence[Array | None]) -> tuple[Array, Array]:
    there = [array for array in arrays if array is not None]
    has_one = np.array([array is not None for array in arrays], np.bool_)
    return has_one, np.concatenate(there) if there else np.zeros(0, np.float32)


def _split(lengths: Array, joined: Array) -> list[Array]:
    ends = np.cumsum(lengths).tolist()
    return [joined[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _split_where_there(has_one: Array, joined: Array, lengths: Array) -> list[Array | None]:
    parts = iter(_split(lengths[has_one], joined))
    return [next(parts) if there else None for there in has_one.tolist()]
