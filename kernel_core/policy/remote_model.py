"""LoRA weights that another program holds, trains and samples: token ids and numbers cross, nothing else.

Eight operations are enough for a cold start, RL, evaluation and export. `tinker_model.py` has them over
Tinker's API.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kernel_core.policy.chat_tokens import Drawn, Ids

Floats = npt.NDArray[np.float32]


class Answered(NamedTuple):
    """A prompt and its answer."""

    prompt_ids: Ids
    answer_ids: Ids


class Weighted(NamedTuple):
    """Answer to learn from: the loss is −Σ weight · π / π_old over its tokens."""

    prompt_ids: Ids
    answer_ids: Ids
    old_logprobs: Floats
    weights: Floats
    """One value per answer token: its advantage times its share in the sum over the batch."""


class Learned(NamedTuple):
    """Result of one optimiser step."""

    logprobs: list[Floats]
    """Log-probabilities of each answer's tokens, as the backward pass computed them."""
    grad_norm: float | None
    """None where the server does not report it."""


class SavedModel(NamedTuple):
    """Locations of the weights on a server."""

    state: str
    """Weights with the optimiser's moments, to resume training."""
    sampler: str
    """Weights alone, for sampling."""


class RemoteModel(Protocol):
    """One model on a server. Every call raises `SourceUnavailable` when the server does not do it in time;
    after a lost update `take` must come before the weights are used again."""

    def take(self, saved: SavedModel) -> None:
        """Train and sample from these weights from now on."""
        ...

    def logprobs(self, answers: Sequence[Answered]) -> list[Floats]:
        """Log-probability of each answer's tokens at temperature 1, by the weights that train."""
        ...

    def learn(
        self,
        answers: Sequence[Weighted],
        lr: float,
        max_grad_norm: float | None,
        weight_decay: float = 0.0,
    ) -> Learned:
        """Make one optimiser step."""
        ...

    def publish(self, name: str) -> None:
        """Sample with the weights that train, as they are now; no two publications have one name."""
        ...

    def save(self, name: str) -> SavedModel:
        """Keep the weights and the optimiser on the server, under a name that was never used."""
        ...

    def sample(
        self,
        prompts: Sequence[Ids],
        *,
        max_new: Sequence[int],
        temperature: float,
        seeds: Sequence[int],
        end_ids: Sequence[int],
    ) -> list[Drawn]:
        """Sample one answer per prompt with the weights published last."""
        ...

    def sampler_logprobs(self, answer: Answered) -> Floats:
        """Return log-probabilities as `logprobs` does, under the weights published last."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
