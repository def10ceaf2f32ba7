"""Interface of a policy for the rest of the system: chat messages in, sampled text and token ids out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Message = dict[str, str]
"""`{"role": "user", "content": "…"}`"""
Messages = Sequence[Message]
_CHARS_PER_TOKEN = 3
"""Conservative for code."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion as it was drawn. Token ids are the source of truth; text is for people and parsers."""

    text: str
    finish_reason: Literal["stop", "length", "error"]
    policy_version: str
    prompt_ids: npt.NDArray[np.int32] | None = None
    token_ids: npt.NDArray[np.int32] | None = None
    """Including the end-of-turn token when `finish_reason` is `stop`."""
    logprobs: npt.NDArray[np.float32] | None = None
    """One value per token of `token_ids`, under the sampling distribution (temperature applied)."""
    counted: int = 0
    """Tokens of an answer without its ids."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer; 0 where they are not known."""
        return self.counted if self.token_ids is None else len(self.token_ids)


class Policy(Protocol):
    """Something that writes completions. Training needs `TorchPolicy`; evaluation takes any."""

    @property
    def version(self) -> str:
        """Changes whenever the weights do."""
        ...

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """Sample one answer per prompt, in order; the same arguments give the same samples.

        `seed` is one for all, or one a prompt, so that a conversation draws the same in any batch.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, for prompt budgets."""
        ...

    def release(self) -> None:
        """Release memory that only sampling needs: a judge on the same GPU is next."""
        ...

    def close(self) -> None: ...


def estimated_tokens(text: str) -> int:
    """Tokens of a text, estimated from its length where no tokenizer is at hand."""
    return len(text) // _CHARS_PER_TOKEN + 1
