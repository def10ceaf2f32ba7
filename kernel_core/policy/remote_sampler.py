"""`sampler.kind: copy` on a node of a cluster: a process there holds the copy, and the trainer asks it.

Each publication is a folder in the run's store that the process reads; a new process begins with the newest.
So a sample that is asked again after a loss comes from the same weights, and from the same seed.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import safetensors.torch
import torch

from kernel_core.config import PolicyConfig, TrainConfig
from kernel_core.places.place import log_in, place_of_sampler, shared_folder
from kernel_core.places.workers import WorkerGroup, follow
from kernel_core.policy.chat_tokens import Ids
from kernel_core.policy.folder import WEIGHTS, put_adapters
from kernel_core.policy.protocol import Messages, Sample
from kernel_core.policy.sampler import Logprobs
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store


class RemoteSampler:
    """Sampler in the trainer's process; see `Sampler`. `published` is the folder of publications."""

    def __init__(self, config: TrainConfig, policy: TorchPolicy, store: Store) -> None:
        self._policy, self._published = policy, Store(f"{shared_folder(store)}/sampler")
        self._published.remove()
        self._dtype = getattr(torch, config.policy.dtype)
        self._version, self._folder = "", ""
        settings = [config.policy.model_dump_json()]
        places, log_file = place_of_sampler(config), log_in(store, "sampler.log")
        self._workers = WorkerGroup(__name__, settings, places, log_file, self._brought_up)

    @property
    def version(self) -> str:
        """Return the version of the weights published last."""
        return self._version

    def publish(self, policy: TorchPolicy) -> None:
        """Write the weights, and have the process take them. No sample may be in work meanwhile."""
        before, name = self._published.names(), uuid.uuid4().hex
        folder = self._published.child(name)
        policy.save(folder, self._dtype)
        self._folder, self._version = folder.root, policy.version
        self._workers.ask("take", self._folder, self._version)
        for old in before:
            self._published.child(old).remove()

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """See `TorchPolicy.sample`. Raises `WorkersLost` where no process goes on."""
        settings = {"temperature": temperature, "max_new_tokens": max_new_tokens, "seed": seed}
        samples: list[Sample] = self._workers.ask("sample", prompts, settings)
        return samples

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> Logprobs:
        """See `TorchPolicy.logprobs`."""
        logprobs: Logprobs = self._workers.ask("logprobs", prompt_ids, token_ids, temperature)
        return logprobs

    def release(self) -> None:
        """Do nothing: the process has its GPU alone."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        return self._policy.count_tokens(text)

    def close(self) -> None:
        """End the process; checkpoints have the weights."""
        self._workers.close()
        self._published.remove()

    def _brought_up(self) -> None:
        if self._folder:
            self._workers.ask_once("take", self._folder, self._version)


class Copy:
    """Sampler in its own process: each method answers the trainer."""

    def __init__(self, config: PolicyConfig, trainer: Connection) -> None:
        self._config, self._trainer = config, trainer
        self._policy: TorchPolicy | None = None

    def take(self, folder: str, version: str) -> None:
        """Take the weights of a publication: later ones in place, so that recorded graphs stay valid."""
        store = Store(folder)
        if self._policy is None:
            self._policy = TorchPolicy.load(store, self._config)
        elif self._policy.base is not None:
            put_adapters(store, self._policy.model)
        else:  # tied weights are not in the file
            weights = safetensors.torch.load(store.read(WEIGHTS))
            self._policy.model.load_state_dict(weights, strict=False)
        self._policy.set_version(version)
        self._trainer.send(None)

    def sample(self, prompts: Sequence[Messages], settings: dict[str, Any]) -> None:
        """See `TorchPolicy.sample`."""
        self._trainer.send(self._taken.sample(prompts, **settings))

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> None:
        """See `TorchPolicy.logprobs`."""
        self._trainer.send(self._taken.logprobs(prompt_ids, token_ids, temperature))

    @property
    def _taken(self) -> TorchPolicy:
        if self._policy is None:
            raise ValueError("no weights were published to this process; call publish before sample")
        return self._policy


if __name__ == "__main__":
    follow(lambda trainer: Copy(PolicyConfig.model_validate_json(sys.argv[1]), trainer))
