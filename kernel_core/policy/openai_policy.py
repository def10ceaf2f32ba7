"""A policy behind an OpenAI-compatible endpoint, such as vLLM's server. For evaluation only.

Chat completions give neither token ids nor the log-probabilities that training needs, so its samples
carry text alone.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import httpx

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, SourceUnavailable
from kernel_core.policy.protocol import Message, Messages, Sample

log = logging.getLogger(__name__)

ATTEMPTS = 4
BACKOFF_S = 0.5
"""Before the second attempt; doubled before each further one."""
TIMEOUT_S = 600.0
"""The limit of one request: a long answer of a busy server."""
CONCURRENCY = 16
"""Requests under way at once; a batching server wants many."""
CHARS_PER_TOKEN = 3.0
"""An estimate on the safe side for code, since the endpoint's tokenizer is not at hand."""


class OpenAIPolicy:
    """Asks `config.endpoint` for `config.model`; one request for all rows that share a prompt."""

    def __init__(self, config: PolicyConfig) -> None:
        if config.endpoint is None:
            raise ConfigError(
                "policy.kind = openai needs policy.endpoint, for example http://localhost:8000/v1"
            )
        self._model = config.model
        self._endpoint = config.endpoint.rstrip("/")
        key = os.environ.get(config.api_key_env)
        self._client = httpx.Client(
            timeout=httpx.Timeout(TIMEOUT_S, connect=10.0),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=CONCURRENCY),
        )

    @property
    def version(self) -> str:
        """The model's name: what is behind it is the server's affair."""
        return self._model

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """One sample a prompt, in order; as repeatable as the server makes its `seed`.

        Raises `SourceUnavailable` when the endpoint cannot be reached or refuses.
        """
        rows_of_prompt: dict[tuple[tuple[tuple[str, str], ...], ...], list[int]] = {}
        for row, messages in enumerate(prompts):
            key = tuple(tuple(sorted(message.items())) for message in messages)
            rows_of_prompt.setdefault(key, []).append(row)
        jobs = list(rows_of_prompt.values())

        def ask(rows: list[int]) -> list[Sample]:
            first = rows[0]
            body = {
                "model": self._model,
                "messages": list[Message](prompts[first]),
                "n": len(rows),
                "temperature": temperature,
                "max_tokens": max_new_tokens,
                "seed": (seed + first if isinstance(seed, int) else seed[first]) % 2**31,
            }
            return [self._as_sample(choice) for choice in self._choices(body)]

        found: dict[int, Sample] = {}
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            for rows, samples in zip(jobs, pool.map(ask, jobs), strict=True):
                found |= dict(zip(rows, samples, strict=True))
        return [found[row] for row in range(len(prompts))]

    def count_tokens(self, text: str) -> int:
        """An estimate from the number of characters."""
        return int(len(text) / CHARS_PER_TOKEN) + 1

    def release(self) -> None:
        """Nothing to do: no memory of this machine's GPU is held."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _choices(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self._post(body)
        try:
            choices = answer.json()["choices"]
            texts = [choice["message"]["content"] for choice in choices]
        except (ValueError, KeyError, TypeError) as error:
            raise SourceUnavailable(
                f"{self._endpoint} answered something that is not a chat completion: {answer.text[:200]!r}"
            ) from error
        if len(texts) != body["n"]:
            raise SourceUnavailable(
                f"{self._endpoint} gave {len(texts)} answers where n = {body['n']} were asked for; "
                "the server must support `n`"
            )
        return choices

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The answer to a request; server errors and lost connections are tried again."""
        trouble = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(BACKOFF_S * 2 ** (attempt - 1))
            try:
                answer = self._client.post(f"{self._endpoint}/chat/completions", json=body)
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__}: {error}"
            except httpx.InvalidURL as error:
                raise ConfigError(f"policy.endpoint = {self._endpoint!r} is not a URL: {error}") from error
            else:
                if answer.is_success:
                    return answer
                trouble = f"HTTP {answer.status_code}: {answer.text[:200]}"
                if answer.status_code < 500 and answer.status_code != 429:
                    raise SourceUnavailable(
                        f"{self._endpoint} refused a request for {self._model}: {trouble}; "
                        "check policy.model, policy.endpoint and the key's environment variable"
                    )
            log.warning("attempt %d of %d at %s: %s", attempt + 1, ATTEMPTS, self._endpoint, trouble)
        raise SourceUnavailable(
            f"{self._endpoint} could not be used after {ATTEMPTS} attempts ({trouble}); "
            "start the server or correct policy.endpoint"
        )

    def _as_sample(self, choice: dict[str, Any]) -> Sample:
        reason: Literal["stop", "length"] = "length" if choice.get("finish_reason") == "length" else "stop"
        text = choice["message"]["content"] or ""
        return Sample(text=text, finish_reason=reason, policy_version=self._model)
