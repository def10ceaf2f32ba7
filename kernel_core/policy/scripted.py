"""Policy with prepared answers, for tests, demonstrations and checks of a whole pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from kernel_core.errors import ConfigError, NotFound
from kernel_core.policy.protocol import Messages, Sample

Answer = Callable[[Messages, int], str]
"""Function of a prompt and the row's seed that returns the answer."""


class ScriptedPolicy:
    """Answers from a list, handed out in order and over again, or from a function of prompt and seed."""

    def __init__(self, answers: Sequence[str] | Answer, version: str = "scripted") -> None:
        if not callable(answers) and not answers:
            raise ConfigError("a scripted policy needs at least one answer")
        self._answers = answers
        self._handed_out = count()
        self._version = version

    @classmethod
    def load(cls, path: str) -> ScriptedPolicy:
        """Load a JSON file that holds a list of answers."""
        file = Path(path)
        if not file.is_file():
            raise NotFound(f"no file {path}; policy.model of a scripted policy names a JSON list of answers")
        try:
            answers = json.loads(file.read_text())
        except ValueError as error:
            raise ConfigError(f"{path} is not JSON: {error}") from error
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise ConfigError(f"{path} must hold a list of strings, one an answer")
        return cls(answers)

    @property
    def version(self) -> str:
        """Return the version as given: a script does not learn."""
        return self._version

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """Return the next answer for each prompt; temperature and length have no effect."""
        return [
            Sample(
                text=self._answer(messages, seed + row if isinstance(seed, int) else seed[row]),
                finish_reason="stop",
                policy_version=self._version,
            )
            for row, messages in enumerate(prompts)
        ]

    def count_tokens(self, text: str) -> int:
        """About four characters a token."""
        return len(text) // 4

    def release(self) -> None:
        """Do nothing: no memory of this machine's GPU is held."""

    def close(self) -> None:
        """Do nothing."""

    def _answer(self, messages: Messages, seed: int) -> str:
        if callable(self._answers):
            return self._answers(messages, seed)
        return self._answers[next(self._handed_out) % len(self._answers)]
