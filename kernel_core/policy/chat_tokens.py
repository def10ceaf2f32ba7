"""Chat messages as token ids and back: what every policy with a tokenizer of its own has in common."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kernel_core.config import PolicyConfig, RolloutConfig
from kernel_core.dialogue.prompt import format_completion
from kernel_core.errors import ConfigError
from kernel_core.policy.protocol import Messages, Sample

log = logging.getLogger(__name__)

Ids = npt.NDArray[np.int32]


class Drawn(NamedTuple):
    """Tokens of one answer with their log-probabilities."""

    token_ids: Ids
    """Includes the end token where the answer ended by itself."""
    logprobs: npt.NDArray[np.float32]
    stopped: bool


NOTHING = Drawn(np.zeros(0, np.int32), np.zeros(0, np.float32), stopped=False)
"""The answer to a prompt that leaves no room for one."""

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ '### ' + message['role'] + '\n' + message['content'] + '\n\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '### assistant\n' }}{% endif %}"
)
"""Template for base models, whose tokenizers have none. `_plain_template` puts a BOS token before it."""


class ChatTokens:
    """A tokenizer and its chat template. Token ids are the source of truth; text is for people."""

    def __init__(self, tokenizer: Any, config: PolicyConfig, end_ids: tuple[int, ...]) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.end_ids = end_ids
        """Token ids at which an answer ends; the first is the one that the policy is taught."""
        if tokenizer.chat_template is None:
            tokenizer.chat_template = _plain_template(tokenizer)

    def encode_messages(self, messages: Messages) -> Ids:
        """Token ids of a conversation, up to where the assistant's next answer begins."""
        return self._encode(self.prompt_texts([messages])[0])

    def encode_with_room(
        self, prompts: Sequence[Messages], max_new_tokens: int
    ) -> tuple[list[Ids], list[int]]:
        """Token ids of each prompt, and the tokens that its answer may have: 0 or less where none fits."""
        prompt_ids = [self.encode_messages(messages) for messages in prompts]
        room = [min(max_new_tokens, self.config.max_context - len(ids)) for ids in prompt_ids]
        for row in (row for row, tokens in enumerate(room) if tokens <= 0):
            log.warning(
                "prompt %d has %d tokens, but policy.max_context = %d; lower rollout.prompt_budget or "
                "raise policy.max_context",
                row,
                len(prompt_ids[row]),
                self.config.max_context,
            )
        return prompt_ids, room

    def as_sample(self, version: str, prompt_ids: Ids, drawn: Drawn) -> Sample:
        """Return an answer with its text, written by the weights of this version."""
        ids = drawn.token_ids
        words = ids[:-1] if drawn.stopped and len(ids) and int(ids[-1]) in self.end_ids else ids
        text = self.tokenizer.decode(words, skip_special_tokens=False)
        reason: Literal["stop", "length", "error"] = "stop" if drawn.stopped else "length"
        return Sample(text, "error" if drawn is NOTHING else reason, version, prompt_ids, ids, drawn.logprobs)

    def prompt_texts(self, conversations: Sequence[Messages]) -> list[str]:
        """Conversations in the words of the chat template, up to where the next answer begins."""
        thinking = self.config.enable_thinking
        texts: list[str] = self.tokenizer.apply_chat_template(
            [list(messages) for messages in conversations],
            add_generation_prompt=True,
            tokenize=False,
            **({} if thinking is None else {"enable_thinking": thinking}),
        )
        return texts

    def check(self, rollout: RolloutConfig) -> None:
        """Raise `ConfigError` for settings under which this policy would write nothing, or which its chat
        template makes void."""
        prompt, answer = rollout.prompt_budget, rollout.sampling.max_new_tokens
        if prompt + answer > self.config.max_context:
            raise ConfigError(
                f"rollout.prompt_budget = {prompt} and rollout.sampling.max_new_tokens = {answer} do not fit "
                f"into policy.max_context = {self.config.max_context}: a long prompt would leave too little "
                "for an answer; lower one of them, or raise policy.max_context"
            )
        if rollout.thoughts == "keep" and not self._shows_earlier_thoughts():
            raise ConfigError(
                "rollout.thoughts = keep, but the chat template of this model drops the thoughts of earlier "
                "turns; set rollout.thoughts to summary or drop"
            )

    def _shows_earlier_thoughts(self) -> bool:
        thought = "a thought that no template has in it"
        messages = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": format_completion(thought, "y")},
            {"role": "user", "content": "z"},
        ]
        return thought in self.prompt_texts([messages])[0]

    def encode_completion(self, text: str) -> Ids:
        """Token ids of an answer as the policy would write it, end token included."""
        return np.append(self._encode(text), np.int32(self.end_ids[0]))

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._encode(text))

    def _encode(self, text: str) -> Ids:
        return np.asarray(self.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int32)


def _plain_template(tokenizer: Any) -> str:
    """Return the plain template behind the BOS token, without which base models such as Gemma never saw
    text."""
    bos = tokenizer.bos_token_id
    begins_with_it = bos is not None and tokenizer("x")["input_ids"][0] == bos
    return "{{ bos_token }}" * begins_with_it + PLAIN_TEMPLATE
