"""Data set, reward function and multi-turn rollout for TRL's `GRPOTrainer`.

Nothing here imports TRL: rows are plain dictionaries, and the other two are callables with TRL's arguments.
The rollout calls one method of the trainer that TRL does not document, `_generate_single_turn`. It generates
by transformers or by vLLM, whichever the trainer was told. It was run with TRL 1.16.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_core.dialogue.environment import EpisodeSource
from kernel_core.dialogue.episode import Episode
from kernel_core.dialogue.overlap import judge_or_none
from kernel_core.gym.contract.requests import Gym
from kernel_core.policy.protocol import Message

_MARK = "kernel-dojo-answer"
"""Stands for an answer in a rendered conversation, to find the text that follows one."""


def training_rows(source: EpisodeSource) -> list[dict[str, Any]]:
    """Build a row per problem for `datasets.Dataset.from_list`: `prompt` as chat messages, and
    `problem_id`."""
    return [{"prompt": list(source.begin(id_).messages), "problem_id": id_} for id_ in source.problems]


class KernelReward:
    """Reward function: the worth of the kernel in each completion, None where the judge failed."""

    __name__ = "kernel_reward"

    def __init__(self, source: EpisodeSource, gym: Gym) -> None:
        self._source = source
        self._gym = gym

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], problem_id: Sequence[str], **rest: Any
    ) -> list[float | None]:
        """Rewards of completions, in order. All of one problem are judged together."""
        texts = [_text_of(completion) for completion in completions]
        episodes = [self._source.begin(id_) for id_ in problem_id]
        requests = [episode.request(text) for episode, text in zip(episodes, texts, strict=True)]
        evaluations = judge_or_none(self._gym, requests)
        rewards = [
            None if evaluation is None else episode.take(text, request, evaluation)
            for episode, text, request, evaluation in zip(episodes, texts, requests, evaluations, strict=True)
        ]
        if log_metric := rest.get("log_metric"):
            known = [evaluation for evaluation in evaluations if evaluation is not None]
            log_metric("kernel/correct", sum(evaluation.correct for evaluation in known) / len(known))
        return rewards


def rollout_reward(
    prompts: Sequence[Any], completions: Sequence[Any], episode_reward: Sequence[float | None], **rest: Any
) -> list[float | None]:
    """Return the rewards that `KernelRollout`, which has judged every turn, recorded."""
    return list(episode_reward)


@dataclass(slots=True)
class _PromptRow:
    """Conversation as tokens: TRL sees a trajectory as a single row."""

    episode: Episode
    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    """1 for a token of the policy, 0 for feedback."""
    logprobs: list[float] = field(default_factory=list)
    failed: bool = False


class KernelRollout:
    """A `rollout_func`: conversations with feedback between answers, as one row of tokens each.

    Feedback tokens carry no loss. The ids of an answer stay as sampled, and only the feedback after them is
    rendered by the chat template. The reward of a row is the sum of its turns' rewards, which is the worth of
    its last kernel; pass `rollout_reward` beside this.
    """

    def __init__(self, source: EpisodeSource, gym: Gym) -> None:
        self._source = source
        self._gym = gym
        self._ids = {_key(row["prompt"]): row["problem_id"] for row in training_rows(source)}

    def __call__(self, prompts: Sequence[list[Message]], trainer: Any) -> dict[str, Any]:
        """Hold one conversation for each prompt, in order."""
        tokenizer = trainer.processing_class
        rows = [
            _PromptRow(
                self._source.begin(self._ids[_key(prompt)]),
                _tokens(tokenizer, _render(tokenizer, prompt)),
            )
            for prompt in prompts
        ]
        has_logprobs = True
        while going := [row for row in rows if not (row.failed or row.episode.done)]:
            inputs = [row.prompt_ids + row.ids for row in going]
            answers, logprobs = trainer._generate_single_turn(inputs, None, {}, 1)
            has_logprobs = has_logprobs and logprobs is not None
            self._turn(going, answers, logprobs, tokenizer)
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.ids for row in rows],
            "logprobs": [row.logprobs for row in rows] if has_logprobs else None,
            "env_mask": [row.own for row in rows],
            "episode_reward": [None if row.failed else row.episode.total for row in rows],
        }

    def _turn(self, rows: list[_PromptRow], answers: Any, logprobs: Any, tokenizer: Any) -> None:
        texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
        requests = [row.episode.request(text) for row, text in zip(rows, texts, strict=True)]
        evaluations = judge_or_none(self._gym, requests)
        for index, (row, text, request, evaluation) in enumerate(
            zip(rows, texts, requests, evaluations, strict=True)
        ):
            answer = [int(token) for token in answers[index]]
            row.ids += answer
            row.own += [1] * len(answer)
            row.logprobs += [0.0] * len(answer) if logprobs is None else list(logprobs[index])
            if evaluation is None:
                row.failed = True
                continue
            row.episode.take(text, request, evaluation)
            if not row.episode.done:
                ended = bool(answer) and answer[-1] == tokenizer.eos_token_id
                feedback = _feedback(tokenizer, row.episode.messages[-1], ended)
                row.ids += feedback
                row.own += [0] * len(feedback)
                row.logprobs += [0.0] * len(feedback)


def _feedback(tokenizer: Any, message: Message, ended: bool) -> list[int]:
    """Return the tokens between two answers: the end of the first, the message, and the start of the next."""
    conversation = [{"role": "user", "content": ""}, {"role": "assistant", "content": _MARK}, message]
    text = _render(tokenizer, conversation).rpartition(_MARK)[2]
    return _tokens(tokenizer, text.removeprefix(tokenizer.eos_token) if ended else text)


def _render(tokenizer: Any, messages: Sequence[Message]) -> str:
    return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _text_of(completion: Any) -> str:
    """Return the text of a completion, which is a text or a list of one chat message."""
    return (
        completion
        if isinstance(completion, str)
        else "".join(message["content"] or "" for message in completion)
    )


def _key(messages: Sequence[Message]) -> str:
    return json.dumps([[message["role"], message["content"]] for message in messages])
