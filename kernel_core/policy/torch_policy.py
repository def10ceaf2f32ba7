"""A policy in torch: any causal language model of transformers, with or without LoRA adapters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError
from kernel_core.policy import decode
from kernel_core.policy.base import Base
from kernel_core.policy.chat_tokens import NOTHING, ChatTokens, Drawn, Ids
from kernel_core.policy.device_memory import bytes_kept_between, release_cached_memory
from kernel_core.policy.fast_decode.graph_decoder import StaticDecoder, decodes
from kernel_core.policy.folder import KIND, load_parts, weights_of, write_parts, write_surroundings
from kernel_core.policy.protocol import Messages, Sample
from kernel_core.policy.wide_head import wide_logits
from kernel_core.store import Manifest, Store


class TorchPolicy(ChatTokens):
    """A model and its tokenizer. Token ids are the source of truth; text is for people and parsers."""

    def __init__(
        self, model: Any, tokenizer: Any, config: PolicyConfig, *, version: str, base: Base | None = None
    ) -> None:
        super().__init__(tokenizer, config, _end_ids(model, tokenizer))
        self.model = model
        self.base = base
        """Base model of the LoRA adapters."""
        self._static = StaticDecoder(model) if config.decoding == "static" and decodes(model) else None
        self._version = version
        _check_positions(model, config)

    @classmethod
    def load(cls, source: str | Store, config: PolicyConfig) -> TorchPolicy:
        """Load a folder that `save` wrote, a transformers folder, or a Hugging Face name.

        With `config.lora_rank`, new adapters are put on it. Raises `NotFound` and `Corrupt`.
        """
        model, tokenizer, version, base = load_parts(source, config)
        is_adapted = hasattr(model, "peft_config")
        return cls(model, tokenizer, config, version=version, base=base if is_adapted else None)

    def save(self, folder: str | Store, dtype: torch.dtype | None = None) -> Manifest:
        """Write weights (adapters alone under LoRA), tokenizer and config as a sealed folder.

        `dtype` casts the weights on the way, for a smaller file; the default loses nothing.
        """
        store = folder if isinstance(folder, Store) else Store(folder)
        return store.seal(KIND, self.write_files(store, dtype), meta={"version": self.version})

    def write_files(self, store: Store, dtype: torch.dtype | None = None) -> dict[str, str]:
        """`save` without the seal: the files' checksums, for a folder that holds more than a policy.

        Once that folder is sealed with them, `load` opens it too.
        """
        return write_parts(
            store, self.model, self.tokenizer, version=self.version, base=self.base, dtype=dtype
        )

    def write_surroundings(self, store: Store) -> dict[str, str]:
        """`write_files` without the weights, which may be written later."""
        return write_surroundings(
            store, self.model, self.tokenizer, version=self.version, base=self.base, dtype=None
        )

    def weights(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the file of weights of a saved policy, with its tensors, which training changes."""
        name, tensors = weights_of(self.model, self.base)
        return {name: tensors}

    def take(self, folder: Store) -> None:
        """Replace these weights and the version by those of a saved policy."""
        config = self.config
        if config.lora_rank is None:  # its weights were trained in float32, whatever the policy computes in
            config = config.model_copy(update={"dtype": "float32"})
        saved = TorchPolicy.load(folder, config)
        self.model.load_state_dict(saved.model.state_dict())
        self.set_version(saved.version)

    @property
    def version(self) -> str:
        """Names the weights; the trainer sets a new one after every update."""
        return self._version

    def set_version(self, version: str) -> None:
        """Set the version after a change of weights."""
        self._version = version

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return next(self.model.parameters()).device

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """Sample one answer per prompt, in order, all in one batch.

        A row's random numbers depend on its own seed alone (one seed for all: on seed and row). A prompt
        that leaves no room in `max_context` gives an empty sample with `finish_reason` "error".
        """
        prompt_ids, room = self.encode_with_room(prompts, max_new_tokens)
        fits = [row for row, tokens in enumerate(room) if tokens > 0]
        written = dict.fromkeys(range(len(prompts)), NOTHING)
        if fits:
            with self.evaluating():
                rows = self._decode(
                    [prompt_ids[row] for row in fits],
                    max_new=[room[row] for row in fits],
                    uniforms_B_T=uniforms(seed, fits, max_new_tokens),
                    temperature=temperature,
                    end_ids=self.end_ids,
                    pad_id=self._pad_id,
                )
            written |= dict(zip(fits, rows, strict=True))
            release_cached_memory(self.device)
        return [self.as_sample(self.version, prompt_ids[row], written[row]) for row in range(len(prompts))]

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> npt.NDArray[np.float32]:
        """Log-probability of each of `token_ids` after the prompt, read in one teacher-forced pass.

        Under the sampling distribution of that temperature, as `Sample.logprobs` has it.
        """
        ids = torch.from_numpy(np.concatenate([prompt_ids, token_ids]).astype(np.int64))[None].to(self.device)
        with torch.no_grad(), self.evaluating(), wide_logits(self.model):
            logits_T_V = self.model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
        logprobs_T_V = torch.log_softmax(logits_T_V.float() / (temperature or 1.0), dim=-1)
        picked = logprobs_T_V.gather(1, ids[0, len(prompt_ids) :, None])[:, 0]
        return picked.cpu().numpy()

    def release(self) -> None:
        """Release sampling memory to the device: another phase, or the judge, is next."""
        if self._static is not None:
            self._static.release(bytes_kept_between(self.device))
        release_cached_memory(self.device)

    def close(self) -> None:
        """Do nothing: the weights go with the object."""

    def _decode(self, prompts: Sequence[Ids], **settings: Any) -> list[Drawn]:
        with wide_logits(self.model):
            if self._static is not None:
                return self._static.decode(prompts, **settings)
            return decode.decode(self.model, prompts, **settings)

    @property
    def _pad_id(self) -> int:
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else self.end_ids[0])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch dropout off inside the block, whatever mode the trainer left; the model's GPU is the current
        one."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.accelerator.device_index(self.device.index):
                yield
        finally:
            self.model.train(was_training)


def uniforms(seed: int | Sequence[int], rows: Sequence[int], count: int) -> npt.NDArray[np.float64]:
    """`count` random numbers in [0, 1) for each row (rows, count), from a counter-based generator.

    A sequence of seeds gives each row its own; a single seed is combined with the row's index.
    """
    keys = [(seed, row) if isinstance(seed, int) else (seed[row], 0) for row in rows]
    return np.stack(
        [np.random.Generator(np.random.Philox(np.random.SeedSequence(k))).random(count) for k in keys]
    )


def _check_positions(model: Any, config: PolicyConfig) -> None:
    """Raise `ConfigError` where the context is longer than a model's table of positions; rotary positions go
    on beyond those that a model was trained on."""
    positions = getattr(model.config, "max_position_embeddings", None)
    is_table = getattr(model.config, "rope_parameters", None) is None
    if is_table and positions is not None and config.max_context > positions:
        raise ConfigError(
            f"policy.max_context = {config.max_context}, but the model knows {positions} positions; set "
            f"policy.max_context={positions}, and rollout.prompt_budget and max_new_tokens to fit into it"
        )


def _end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end an answer: the tokenizer's own, then those of the model's generation
    settings."""
    configured = model.generation_config.eos_token_id
    also = configured if isinstance(configured, list) else [configured]
    return tuple(dict.fromkeys(int(i) for i in (tokenizer.eos_token_id, *also) if i is not None))
