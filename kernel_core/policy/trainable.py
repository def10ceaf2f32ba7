"""Interface of a policy for training, wherever its weights are: in this process, or on a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from kernel_core.config import PolicyConfig, RolloutConfig
from kernel_core.policy.chat_tokens import Ids
from kernel_core.policy.protocol import Messages, Policy
from kernel_core.store import Manifest, Store


class Trainable(Policy, Protocol):
    """Policy with a tokenizer and with weights that can be changed, saved and restored."""

    config: PolicyConfig
    tokenizer: Any
    end_ids: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        """Return the device on which this process computes for it."""
        ...

    def set_version(self, version: str) -> None:
        """Set the version after a change of weights."""
        ...

    def check(self, rollout: RolloutConfig) -> None:
        """Raise `ConfigError` for settings under which it would write nothing."""
        ...

    def prompt_texts(self, conversations: Sequence[Messages]) -> list[str]:
        """Conversations in the words of the chat template."""
        ...

    def encode_messages(self, messages: Messages) -> Ids:
        """Token ids of a conversation, up to where the next answer begins."""
        ...

    def encode_completion(self, text: str) -> Ids:
        """Token ids of an answer as the policy would write it."""
        ...

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> npt.NDArray[np.float32]:
        """Log-probability of each of `token_ids` after the prompt, by the weights that train."""
        ...

    def write_surroundings(self, store: Store) -> dict[str, str]:
        """Write the small files of a saved policy, and give their checksums; weights may follow later."""
        ...

    def weights(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the files of weights of a saved policy; none where a server keeps them."""
        ...

    def save(self, folder: str | Store) -> Manifest:
        """Write everything as a sealed folder."""
        ...

    def take(self, folder: Store) -> None:
        """Replace these weights and the version by those of a saved policy."""
        ...
