"""A policy behind an OpenAI-compatible endpoint, such as vLLM's server. For evaluation only.

Chat completions give neither token ids nor the log-probabilities that training needs, so its samples
carry text alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import sleep
from typing import Any, Literal, TypeVar

import httpx

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, SourceUnavailable, keep_secret, redacted
from kernel_core.policy.protocol import Message, Messages, Sample, estimated_tokens
from kernel_core.store import digest_of

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger(__name__)

ATTEMPTS = 4
TIMEOUTS = 2
"""Attempts of a request that each took the whole of `policy.timeout_s`."""
BACKOFF_S = 0.5
"""Delay before the second attempt, in seconds; doubled before each further one."""
MOST_WAIT_S = 60.0
"""Longest wait that a server's `Retry-After` is granted."""
PASSING = frozenset({408, 409, 425, 429})
"""Refusals that may pass; any other status below 500 is the caller's mistake."""


class OpenAIPolicy:
    """Asks `config.endpoint` for `config.model`; one request for all rows that share a prompt.

    A server that gives fewer answers than `n` asked for is asked for the others one by one.
    """

    def __init__(self, config: PolicyConfig) -> None:
        if config.endpoint is None:
            raise ConfigError("policy.kind = openai needs policy.endpoint")
        self._model, self._extra = config.model, config.extra_body
        self._endpoint, self._concurrency = config.endpoint.rstrip("/"), config.concurrency
        key = os.environ.get(config.api_key_env)
        if key:
            keep_secret(key)
        self._client = httpx.Client(
            timeout=httpx.Timeout(config.timeout_s, connect=10.0),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=config.concurrency),
        )

    @property
    def version(self) -> str:
        """Return the model's name and a hash of further settings; the server decides which weights it
        means."""
        return f"{self._model}+{digest_of(self._extra)[:8]}" if self._extra else self._model

    def check(self) -> None:
        """Send one small request, so that a configuration error surfaces before any work.

        Raises as `sample` does.
        """
        messages: list[Message] = [{"role": "user", "content": "Answer with one word."}]
        self._post(self._body(messages, n=1, temperature=0.0, max_tokens=16, seed=0))

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """Sample one answer per prompt, in order; repeatable as far as the server honours its `seed`.

        Raises `SourceUnavailable` when the endpoint cannot be reached, `ConfigError` when it refuses or
        answers in another form.
        """
        rows_of_prompt: dict[tuple[tuple[tuple[str, str], ...], ...], list[int]] = {}
        for row, messages in enumerate(prompts):
            key = tuple(tuple(sorted(message.items())) for message in messages)
            rows_of_prompt.setdefault(key, []).append(row)
        jobs = list(rows_of_prompt.values())

        def ask(rows: list[int]) -> list[dict[str, Any]]:
            messages = list[Message](prompts[rows[0]])
            choices: list[dict[str, Any]] = []
            while len(choices) < len(rows):
                row = rows[len(choices)]
                choices += self._choices(
                    self._body(
                        messages,
                        n=1 if choices else len(rows),
                        temperature=temperature,
                        max_tokens=max_new_tokens,
                        seed=(seed + row if isinstance(seed, int) else seed[row]) % 2**31,
                    )
                )
            return choices[: len(rows)]

        chosen: dict[int, dict[str, Any]] = {}
        for rows, choices in zip(jobs, _side_by_side(ask, jobs, self._concurrency), strict=True):
            chosen |= dict(zip(rows, choices, strict=True))
        _warn_of_empty(list(chosen.values()), max_new_tokens)
        return [self._as_sample(chosen[row]) for row in range(len(prompts))]

    def count_tokens(self, text: str) -> int:
        """Estimate the number of tokens from the number of characters."""
        return estimated_tokens(text)

    def release(self) -> None:
        """Do nothing: no memory of this machine's GPU is held."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _body(self, messages: list[Message], **settings: Any) -> dict[str, Any]:
        return {"model": self._model, "messages": messages, **settings, **self._extra}

    def _choices(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self._post(body)
        try:
            choices: list[dict[str, Any]] = answer.json()["choices"]
            for choice in choices:
                choice["message"]["content"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self._endpoint} answered something that is not a chat completion: {answer.text[:200]!r}; "
                "policy.endpoint is the base URL that ends before /chat/completions, often with /v1"
            ) from error
        if not choices:
            raise ConfigError(f"{self._endpoint} gave 0 answers where n = {body['n']} were asked for")
        return choices

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """Send a request and return the answer; server errors and lost connections are retried."""
        trouble, wait_s, timeouts = "", 0.0, 0
        for attempt in range(ATTEMPTS):
            sleep(wait_s)
            wait_s = BACKOFF_S * 2**attempt
            try:
                answer = self._client.post(f"{self._endpoint}/chat/completions", json=body)
            except httpx.InvalidURL as error:
                raise ConfigError(f"policy.endpoint = {self._endpoint!r} is not a URL: {error}") from error
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__}: {error}"
                timeouts += isinstance(error, httpx.ReadTimeout)
                if timeouts == TIMEOUTS:
                    trouble += f"; no answer within policy.timeout_s = {self._client.timeout.read:g}, twice"
                    break
            else:
                if answer.is_success:
                    return answer
                trouble = f"HTTP {answer.status_code}: {answer.text[:200]}"
                if answer.status_code < 500 and answer.status_code not in PASSING:
                    raise ConfigError(
                        f"{self._endpoint} refused a request for {self._model}: {trouble}; check "
                        "policy.model, policy.endpoint and the key in the variable of policy.api_key_env"
                    )
                wait_s = max(wait_s, _retry_after(answer))
            reason = redacted(trouble)
            log.warning("attempt %d of %d at %s: %s", attempt + 1, ATTEMPTS, self._endpoint, reason)
        raise SourceUnavailable(
            f"{self._endpoint} could not be used after {attempt + 1} attempts ({trouble}); "
            "start the server or correct policy.endpoint"
        )

    def _as_sample(self, choice: dict[str, Any]) -> Sample:
        reason: Literal["stop", "length"] = "length" if choice.get("finish_reason") == "length" else "stop"
        text = choice["message"]["content"] or ""
        return Sample(text=text, finish_reason=reason, policy_version=self.version)


def _side_by_side(ask: Callable[[T], R], jobs: Sequence[T], at_once: int) -> list[R]:
    """Return `ask`'s result for each job, in order.

    The first error is raised at once, and so is an interrupt: nothing waits for requests that are under way
    then, which may take minutes, and no further one begins.
    """
    left = deque(enumerate(jobs))
    done: SimpleQueue[tuple[int, R | BaseException]] = SimpleQueue()

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                number, job = left.popleft()
                try:
                    done.put((number, ask(job)))
                except BaseException as error:
                    done.put((number, error))

    for _ in range(min(at_once, len(jobs))):
        threading.Thread(target=work, daemon=True).start()
    answers: dict[int, R] = {}
    try:
        for _ in jobs:
            number, answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            answers[number] = answer
    finally:
        left.clear()
    return [answers[number] for number in range(len(jobs))]


def _retry_after(answer: httpx.Response) -> float:
    """Seconds that the server asks to wait, within bounds; 0 without a number."""
    try:
        return min(float(answer.headers.get("Retry-After", 0)), MOST_WAIT_S)
    except ValueError:
        return 0.0


def _warn_of_empty(choices: Sequence[dict[str, Any]], max_new_tokens: int) -> None:
    """Log how many answers are empty and how many spent their tokens on reasoning: they count as
    malformed."""
    empty = [choice["message"] for choice in choices if not (choice["message"]["content"] or "").strip()]
    if not empty:
        return
    thought = sum(bool(message.get("reasoning_content") or message.get("reasoning")) for message in empty)
    why = "; see the next step of the scorecard"
    if thought:
        why = (
            f", {thought} of them after reasoning that used up the {max_new_tokens} tokens: raise "
            "rollout.sampling.max_new_tokens, or turn reasoning off with policy.extra_body"
        )
    log.warning("%d of %d answers are empty%s", len(empty), len(choices), why)
