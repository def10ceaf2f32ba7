"""Sampling from a vLLM server: token ids in, token ids and log-probabilities out; adapters, or all weights.

Each publication of LoRA adapters is a folder of its own that the server loads under a name that was never
used before; the request names it and the answer echoes it, so a sample cannot come from other weights
unnoticed. A version alone is no such name: a step that is repeated after a kill has the same version and
other weights. The server refuses a name that it knows, and would read the killed attempt's cached prefixes
under it. The base model behind the server is never touched.

Without adapters the server reads all weights again from their folder (`served_weights.py`). Its model has one
name for every version then, so only a server that training started is used: each of its processes begins with
the newest weights. The `cache_salt` of a request keeps keys and values of earlier weights out of its reach.

`sampler.kind: vllm` starts the server itself
(`vllm_process.py`); another is started with

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve MODEL --enable-lora --max-lora-rank RANK \\
        --max-loras 2 --logprobs-mode processed_logprobs --generation-config vllm

`processed_logprobs` are those after the temperature, as training needs them. vLLM takes filters (top-k,
top-p) and a limit of tokens from the model's generation_config.json by default: the last option
turns that off for the limit, and each request for the filters. A server that dies in the middle of a step
costs that step's requests: they are tried again, and once it is back its adapter is loaded again. A server
that training started is started again at once.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from kernel_core.config import SamplerConfig
from kernel_core.errors import ConfigError, SourceUnavailable
from kernel_core.policy.chat_tokens import NOTHING, Drawn, Ids
from kernel_core.policy.protocol import Messages, Sample
from kernel_core.policy.sampler import Logprobs
from kernel_core.policy.served_weights import ServedWeights
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.vllm_process import MOST_SEQUENCES, VllmProcess
from kernel_core.store import Store

log = logging.getLogger(__name__)

ATTEMPTS = 5
BACKOFF_S = 0.5
"""Delay before the second attempt, in seconds; doubled before each further one."""
TIMEOUT_S = 600.0
KEPT_ADAPTERS = 2
"""Folders of earlier publications that stay, for a server that is still reading one."""

UNFILTERED = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Request fields that switch filters off, so that the temperature alone shapes the distribution."""


class ServerSampler:
    """Asks a server that training started, or `config.endpoint` without one.

    The tokenizer is the trainer's, so that ids mean the same on both sides. Threads may sample together.
    """

    def __init__(
        self,
        policy: TorchPolicy,
        config: SamplerConfig,
        adapters: Store,
        server: VllmProcess | None = None,
        weights: ServedWeights | None = None,
    ) -> None:
        """`weights` is the folder of a server that takes all weights; `adapters` has those of the others."""
        if server is None and config.endpoint is None:
            raise ConfigError(
                "sampler.kind = server needs sampler.endpoint, for example http://localhost:8000"
            )
        self._policy, self._adapters, self._server, self._weights = policy, adapters, server, weights
        self._endpoint = (config.endpoint or "").rstrip("/").removesuffix("/v1")
        self._tokenizing = threading.Lock()
        self._version, self._name, self._folder = "", "", ""
        self._salt: dict[str, str] = {}
        self._client = httpx.Client(
            timeout=httpx.Timeout(TIMEOUT_S, connect=10.0),
            limits=httpx.Limits(max_connections=MOST_SEQUENCES),
        )
        self._threads = ThreadPoolExecutor(MOST_SEQUENCES)

    @property
    def version(self) -> str:
        """Return the version of the weights published last."""
        return self._version

    def publish(self, policy: TorchPolicy) -> None:
        """Write the weights, and have the server load them. No sample may be in work meanwhile."""
        readable = re.sub(r"[^A-Za-z0-9._-]", "-", policy.version)
        name = f"{readable}-{uuid.uuid4().hex[:8]}"
        if self._weights is None or self._server is None:
            self._publish_adapter(policy, name)
        else:
            self._weights.write(policy)
            self._server.take_weights()
            self._version, self._name, self._salt = policy.version, self._server.model, {"cache_salt": name}

    def _publish_adapter(self, policy: TorchPolicy, name: str) -> None:
        """Load the adapter of this name into the server, and unload the one before."""
        before = self._name
        self._folder = self._path(name)
        policy.model.save_pretrained(self._folder)
        self._load(name)
        self._version, self._name = policy.version, name
        if before:
            self._post("/v1/unload_lora_adapter", {"lora_name": before}, refused_is_fine=True)
        by_age = sorted(self._adapters.names(), key=lambda child: Path(self._path(child)).stat().st_mtime_ns)
        for old in by_age[: -1 - KEPT_ADAPTERS]:
            self._adapters.child(old).remove()

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """Sample one answer per prompt, in order; repeatable as far as the server honours its `seed`.

        Raises `SourceUnavailable` when the server cannot be reached, refuses, or answers something else
        than was asked.
        """
        with self._tokenizing:
            prompt_ids, room = self._policy.encode_with_room(prompts, max_new_tokens)

        def ask(row: int) -> Sample:
            if room[row] <= 0:
                return self._policy.as_sample(self._version, prompt_ids[row], NOTHING)
            answer = self._complete(
                prompt_ids[row],
                max_tokens=room[row],
                temperature=temperature,
                seed=(seed + row if isinstance(seed, int) else seed[row]) % 2**31,
                stop_token_ids=list(self._policy.end_ids),
                logprobs=0,
                **UNFILTERED,
            )
            return self._as_sample(prompt_ids[row], answer)

        asked = [self._threads.submit(ask, row) for row in range(len(prompts))]
        try:
            return [future.result() for future in asked]
        except CancelledError:
            raise SourceUnavailable("the sampler was closed before all answers were there") from None
        finally:
            for future in asked:
                future.cancel()
            wait(asked)

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> Logprobs:
        """Return prompt log-probabilities from the server, which computes them at temperature 1 only."""
        if temperature != 1.0:
            raise ValueError(f"a server scores at temperature 1.0, not {temperature}")
        choice = self._complete(
            np.concatenate([prompt_ids, token_ids]), max_tokens=1, temperature=1.0, prompt_logprobs=0
        )
        try:
            scored = choice["prompt_logprobs"][len(prompt_ids) :]
            logprobs = [
                float(entry[str(token)]["logprob"]) for entry, token in zip(scored, token_ids, strict=True)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise SourceUnavailable(
                f"{self._endpoint} does not score prompts (prompt_logprobs): published weights cannot be "
                "verified, so training cannot use it"
            ) from error
        return np.array(logprobs, np.float32)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        with self._tokenizing:
            return self._policy.count_tokens(text)

    def release(self) -> None:
        """Let a server that training started sleep where its GPU is shared; the next request wakes it."""
        if self._server is not None:
            self._server.sleep()

    def close(self) -> None:
        """End a server that training started, and close the connections.

        Requests under way end with the server. A connection that is closed under one may leave it waiting
        for all of its time, as its number is another file's then.
        """
        if self._server is not None:
            self._server.close()
        self._threads.shutdown(cancel_futures=True)
        self._client.close()
        if self._weights is not None:
            self._weights.remove()

    def _complete(self, prompt_ids: Ids, **settings: Any) -> dict[str, Any]:
        """Return the single choice for a prompt of token ids, by the weights published last."""
        ids = {"prompt": prompt_ids.tolist(), "return_token_ids": True}
        body = {"model": self._name, **ids, **self._salt, **settings}
        answer = self._post("/v1/completions", body).json()
        choice: dict[str, Any] = answer["choices"][0]
        if answer.get("model") != self._name:
            raise SourceUnavailable(
                f"{self._endpoint} answered as {answer.get('model')!r} where {self._name!r} was asked"
            )
        return choice

    def _as_sample(self, prompt_ids: Ids, choice: dict[str, Any]) -> Sample:
        try:
            token_ids = np.array(choice["token_ids"], np.int32)
            logprobs = np.array(choice["logprobs"]["token_logprobs"], np.float32)
            read_ids = choice.get("prompt_token_ids")
        except (KeyError, TypeError, ValueError) as error:
            raise SourceUnavailable(
                f"{self._endpoint} gives no token ids or log-probabilities, which training needs; "
                "use a vLLM server that knows return_token_ids"
            ) from error
        if len(logprobs) != len(token_ids) or (read_ids is not None and read_ids != prompt_ids.tolist()):
            raise SourceUnavailable(
                f"{self._endpoint} answered {len(token_ids)} tokens with {len(logprobs)} log-probabilities, "
                "or read another prompt than was sent"
            )
        drawn = Drawn(token_ids, logprobs, stopped=choice["finish_reason"] != "length")
        return self._policy.as_sample(self._version, prompt_ids, drawn)

    def _path(self, name: str) -> str:
        return self._adapters.path(name).removeprefix("file://")

    def _load(self, name: str) -> None:
        self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": self._folder})

    def _post(self, path: str, body: dict[str, Any], refused_is_fine: bool = False) -> httpx.Response:
        """Send a request and return the answer; recover from lost connections, server errors and lost
        adapters."""
        trouble = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(BACKOFF_S * 2 ** (attempt - 1))
                if self._server is not None:
                    self._server.mend()
            if self._server is not None:
                self._endpoint = self._server.endpoint()
            try:
                answer = self._client.post(self._endpoint + path, json=body)
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__}: {error}"
                continue
            if answer.is_success or (refused_is_fine and answer.status_code < 500):
                return answer
            trouble = f"HTTP {answer.status_code}: {answer.text[:200]}"
            if "already been loaded" in answer.text:  # by this publication: the first answer was lost
                return answer
            if answer.status_code == 404 and path == "/v1/completions" and self._weights is None:
                log.warning("%s has forgotten %s; it is loaded again", self._endpoint, self._name)
                self._load(self._name)
            elif answer.status_code < 500 and answer.status_code != 429:
                break
            log.warning("attempt %d of %d at %s: %s", attempt + 1, ATTEMPTS, self._endpoint, trouble)
        raise SourceUnavailable(
            f"{self._endpoint}{path} could not be used ({trouble}); start the server again as "
            "kernel_core/policy/server_sampler.py says, and run the same command: nothing is lost"
        )
