"""A policy with its weights on a Tinker server: `policy.kind=tinker`. Sampled, trained and kept there.

The chat template and the tokenizer are here, so that prompts, answers and rewards are made as for any other
policy. A saved folder holds names: which state and which adapters the server keeps, and of which model.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoTokenizer, GenerationConfig

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, NotFound, first_line
from kernel_core.policy.chat_tokens import NOTHING, ChatTokens, Ids
from kernel_core.policy.folder import ABOUT, KIND
from kernel_core.policy.protocol import Messages, Sample
from kernel_core.policy.remote_model import Answered, Floats, RemoteModel, SavedModel
from kernel_core.policy.sampler import PolicySampler
from kernel_core.store import Manifest, Store

REMOTE = "tinker"
"""Key of `policy.json` with what the server keeps."""


class TinkerPolicy(ChatTokens):
    """Local tokenizer with a remote model."""

    def __init__(self, tokenizer: Any, config: PolicyConfig, model: RemoteModel, *, version: str) -> None:
        super().__init__(tokenizer, config, _end_ids(config.model, tokenizer))
        self.model = model
        self._version = self._published = version

    @classmethod
    def load(cls, source: str | Store | None, config: PolicyConfig) -> TinkerPolicy:
        """Load the base model with new adapters, or the weights that a saved folder names."""
        from kernel_core.policy.tinker_model import TinkerModel

        version, saved = config.model, None
        if source is not None:
            version, saved = read_saved(source if isinstance(source, Store) else Store(source), config)
        return cls(_tokenizer(config), config, TinkerModel(config, saved), version=version)

    @property
    def version(self) -> str:
        """Names the weights that train."""
        return self._version

    @property
    def published(self) -> str:
        """Names the weights that write."""
        return self._published

    def set_version(self, version: str) -> None:
        """See `Trainable`."""
        self._version = version

    @property
    def device(self) -> torch.device:
        """Return the CPU: nothing but the numbers of a report is computed here."""
        return torch.device("cpu")

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """Sample one answer per prompt, in order; repeatable as far as the server honours its seeds.

        Raises `SourceUnavailable` when the server does not answer all of them.
        """
        prompt_ids, room = self.encode_with_room(prompts, max_new_tokens)
        fits = [row for row, tokens in enumerate(room) if tokens > 0]
        drawn = self.model.sample(
            [prompt_ids[row] for row in fits],
            max_new=[room[row] for row in fits],
            temperature=temperature,
            seeds=[seed + row if isinstance(seed, int) else seed[row] for row in fits],
            end_ids=self.end_ids,
        )
        written = dict(zip(fits, drawn, strict=True))
        return [
            self.as_sample(self._published, prompt_ids[row], written.get(row, NOTHING))
            for row in range(len(prompts))
        ]

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> Floats:
        """See `Trainable`; a server scores at temperature 1."""
        if temperature != 1.0:
            raise ValueError(f"a Tinker server scores at temperature 1.0, not {temperature}")
        return self.model.logprobs([Answered(prompt_ids, token_ids)])[0]

    def publish(self) -> None:
        """Write with the weights that train, from the next sample on."""
        self.model.publish(self._new_name())
        self._published = self._version

    def write_surroundings(self, store: Store) -> dict[str, str]:
        """Save weights and optimiser on the server, and record their names in the folder."""
        saved = self.model.save(self._new_name())
        about = {"version": self._version, REMOTE: {"base": self.config.model, **saved._asdict()}}
        return {ABOUT: store.write_json(ABOUT, about)}

    def weights(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return nothing: the server keeps the weights."""
        return {}

    def save(self, folder: str | Store) -> Manifest:
        """See `Trainable`."""
        store = folder if isinstance(folder, Store) else Store(folder)
        return store.seal(KIND, self.write_surroundings(store), meta={"version": self._version})

    def take(self, folder: Store) -> None:
        """See `Trainable`."""
        self._version, saved = read_saved(folder, self.config)
        self._published = self._version
        self.model.take(saved)

    def release(self) -> None:
        """Do nothing: the server has memory of its own."""

    def close(self) -> None:
        """End the connection."""
        self.model.close()

    def _new_name(self) -> str:
        """Return a new name: a step that is repeated after a kill has the same version and other weights."""
        readable = re.sub(r"[^A-Za-z0-9_-]", "-", self._version)[-60:].strip("-")
        return f"{readable}-{uuid.uuid4().hex[:8]}"


class TinkerSampler(PolicySampler[TinkerPolicy]):
    """Sampler of the same server."""

    @property
    def version(self) -> str:
        """Return the version published last."""
        return self._policy.published

    def publish(self, policy: Any) -> None:
        """Write with the weights that train, from the next sample on."""
        self._policy.publish()

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> Floats:
        """Return log-probabilities at temperature 1, as the sampler computes them."""
        if temperature != 1.0:
            raise ValueError(f"a Tinker server scores at temperature 1.0, not {temperature}")
        return self._policy.model.sampler_logprobs(Answered(prompt_ids, token_ids))


def read_saved(store: Store, config: PolicyConfig) -> tuple[str, SavedModel]:
    """Read the version of a saved folder and the names of its weights on the server.

    Raises `ConfigError` for the folder of another model, or of weights that are on no server.
    """
    if not store.exists(ABOUT):
        raise NotFound(f"{store.root} holds no saved policy: {ABOUT} is missing")
    about: dict[str, Any] = store.read_json(ABOUT)
    if REMOTE not in about:
        raise ConfigError(f"the weights of {store.root} are files, not on a server; set policy.kind=torch")
    there = about[REMOTE]
    if there["base"] != config.model:
        raise ConfigError(
            f"the adapters of {store.root} belong to {there['base']}, and policy.model is {config.model}; "
            f"set policy.model={there['base']}"
        )
    return about["version"], SavedModel(there["state"], there["sampler"])


def _tokenizer(config: PolicyConfig) -> Any:
    try:
        return AutoTokenizer.from_pretrained(config.model, revision=config.revision)
    except (OSError, ValueError) as error:
        raise NotFound(
            f"no tokenizer of {config.model!r} in the Hugging Face cache, on the hub or in a folder "
            f"({first_line(error)})"
        ) from error


def _end_ids(model: str, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end an answer: the tokenizer's own, then those of the model's generation
    settings."""
    try:
        configured = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        configured = None
    also = configured if isinstance(configured, list) else [configured]
    return tuple(dict.fromkeys(int(i) for i in (tokenizer.eos_token_id, *also) if i is not None))
