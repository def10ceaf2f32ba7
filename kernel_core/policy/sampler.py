"""Samplers write the rollouts of training. The trainer knows only the protocol; `open_sampler` picks one.

| `sampler.kind` | what writes                                     | its weights after an update             |
|----------------|-------------------------------------------------|-----------------------------------------|
| `inline`       | the trained model itself                        | the same tensors: nothing to publish    |
| `copy`         | a copy in `policy.dtype`, on `placement.sample` | copied over in place                    |
|                | or on a node of `placement.cluster: ray`        | a folder, read in place                 |
| `vllm`         | a vLLM server that training starts              | a versioned adapter, or all from a file |
| `server`       | a vLLM server behind its OpenAI endpoint        | a versioned LoRA adapter                |

A policy on a Tinker server (`policy.kind=tinker`) is sampled there, whatever writes (`tinker_policy.py`).

Every sample names the version that wrote it. Whether a sampler really has the weights that it says is for
`publish.Publisher` to find out.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError
from kernel_core.places.place import log_in, shared_folder
from kernel_core.policy.base import Base
from kernel_core.policy.chat_tokens import Ids
from kernel_core.policy.protocol import Messages, Policy, Sample
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.trainable import Trainable
from kernel_core.store import Store

Logprobs = npt.NDArray[np.float32]
PolicyT = TypeVar("PolicyT", bound=Trainable)


class Sampler(Policy, Protocol):
    """Policy that accepts new weights."""

    def publish(self, policy: Any) -> None:
        """Write with the weights of this policy, of the kind that the sampler was opened for, and under
        their version, from the next sample on."""
        ...

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> Logprobs:
        """Log-probability of each of `token_ids` after the prompt, as this sampler computes it."""
        ...


def open_sampler(config: TrainConfig, policy: Trainable, store: Store) -> Sampler:
    """Open the sampler that a config names; `store` is the run's, where weights are published."""
    if not isinstance(policy, TorchPolicy):
        from kernel_core.policy.tinker_policy import TinkerPolicy, TinkerSampler

        assert isinstance(policy, TinkerPolicy)
        return TinkerSampler(policy)
    match config.sampler.kind:
        case "inline":
            return InlineSampler(policy)
        case "copy" if config.placement.cluster == "ray":
            from kernel_core.policy.remote_sampler import RemoteSampler

            return RemoteSampler(config, policy, store)
        case "copy":
            gpus = config.placement.sample
            return CopySampler(policy, torch.device("cuda", gpus[0]) if gpus else None)
        case "server" | "vllm":
            return _server_sampler(config, policy, store)


def _server_sampler(config: TrainConfig, policy: TorchPolicy, store: Store) -> Sampler:
    from kernel_core.policy.served_weights import ServedWeights
    from kernel_core.policy.server_sampler import ServerSampler
    from kernel_core.policy.vllm_process import VllmProcess

    kind = config.sampler.kind
    if policy.base is None and kind == "server":
        raise ConfigError(
            "sampler.kind = server publishes LoRA adapters; set policy.lora_rank, "
            "or sampler.kind=vllm or copy for full weights"
        )
    if config.placement.cluster == "ray":
        shared_folder(store)
    if not store.is_local:
        raise ConfigError(
            f"sampler.kind = {kind} reads weights from a folder, and {store.root} is none; "
            "set root to a folder that the server sees too"
        )
    server = weights = None
    if kind == "vllm":
        log_file, base = log_in(store, "vllm.log"), policy.base
        assert log_file is not None
        if base is None:
            weights = ServedWeights(store.child("served"), policy)
            base = Base(name=weights.folder)
        server = VllmProcess(config, base, log_file)
    return ServerSampler(policy, config.sampler, store.child("adapters"), server, weights)


class PolicySampler(Generic[PolicyT]):
    """Sampler that asks a policy of this process."""

    def __init__(self, policy: PolicyT) -> None:
        self._policy = policy

    @property
    def version(self) -> str:
        """Return the version of the weights published last."""
        return self._policy.version

    def sample(
        self,
        prompts: Sequence[Messages],
        *,
        temperature: float,
        max_new_tokens: int,
        seed: int | Sequence[int],
    ) -> list[Sample]:
        """See `Policy.sample`."""
        with self._arithmetic():
            return self._policy.sample(
                prompts, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed
            )

    def logprobs(self, prompt_ids: Ids, token_ids: Ids, temperature: float) -> Logprobs:
        """See `Trainable.logprobs`."""
        with self._arithmetic():
            return self._policy.logprobs(prompt_ids, token_ids, temperature)

    def release(self) -> None:
        """See `Policy.release`."""
        self._policy.release()

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        return self._policy.count_tokens(text)

    def close(self) -> None:
        """Do nothing: the policy goes with the object."""

    def _arithmetic(self) -> AbstractContextManager[object]:
        return nullcontext()


class InlineSampler(PolicySampler[TorchPolicy]):
    """Sampler on the training weights, in bfloat16 on CUDA where the policy computes so."""

    def publish(self, policy: TorchPolicy) -> None:
        """Do nothing: the weights are the policy's own."""

    def _arithmetic(self) -> torch.autocast:
        is_enabled = self._policy.config.dtype == "bfloat16" and self._policy.device.type == "cuda"
        # Weights cast inside a recorded graph must be cast there every time: no cache of casts.
        return torch.autocast("cuda", torch.bfloat16, enabled=is_enabled, cache_enabled=False)


class CopySampler(PolicySampler[TorchPolicy]):
    """Sampler on a copy of the training weights, in the type that the policy computes in.

    Frozen weights on the same device are shared.
    """

    def __init__(self, policy: TorchPolicy, device: torch.device | None = None) -> None:
        place = device or policy.device
        dtype = getattr(torch, policy.config.dtype)

        def copied(weight: torch.nn.Parameter) -> torch.nn.Parameter:
            if not weight.requires_grad and weight.device == place:
                return weight
            kept = dtype if weight.requires_grad else weight.dtype
            return torch.nn.Parameter(weight.detach().to(place, kept, copy=True), requires_grad=False)

        weights: dict[int, Any] = {id(p): copied(p) for p in policy.model.parameters()}
        model = copy.deepcopy(policy.model, weights).requires_grad_(False).eval().to(place)
        self._trained = [p.requires_grad for p in policy.model.parameters()]
        super().__init__(
            TorchPolicy(model, policy.tokenizer, policy.config, version=policy.version, base=policy.base)
        )

    @torch.no_grad()
    def publish(self, policy: TorchPolicy) -> None:
        """Copy trained weights in place, so that CUDA graphs stay valid; take the policy's version."""
        pairs = zip(self._policy.model.parameters(), policy.model.parameters(), strict=True)
        mine, theirs = zip(
            *(pair for pair, trained in zip(pairs, self._trained, strict=True) if trained), strict=True
        )
        torch._foreach_copy_(list(mine), list(theirs))
        self._policy.set_version(policy.version)
