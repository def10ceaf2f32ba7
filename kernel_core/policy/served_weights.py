"""Folder from which a vLLM server reads a policy without adapters: complete, and of the newest publication.

A server that starts reads it, and a running one reads it again after each publication. The file of weights is
replaced in one move, so that no reader sees half of it. It is written without waiting for the disk: a host
that loses power loses the server too, and a run goes on from its checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import torch

from kernel_core.policy.folder import WEIGHTS
from kernel_core.policy.tensor_stream import safetensors_parts
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store


class ServedWeights:
    """One folder on this host. Weights are in `policy.dtype`, in which the server computes."""

    def __init__(self, store: Store, policy: TorchPolicy) -> None:
        """Write all of it, with the weights that the policy has now."""
        self._store = store
        self.folder = store.root.removeprefix("file://")
        """The path for the server."""
        self._dtype = getattr(torch, policy.config.dtype)
        policy.write_surroundings(store)
        self.write(policy)

    def write(self, policy: TorchPolicy) -> None:
        """Replace the weights."""
        [(name, tensors)] = policy.weights().items()
        assert name == WEIGHTS, "adapters have folders of their own"
        partial = Path(self.folder) / "weights.partial"
        with partial.open("wb") as file:
            file.writelines(safetensors_parts(tensors, self._dtype))
        partial.replace(Path(self.folder) / WEIGHTS)

    def remove(self) -> None:
        """Remove the folder: no server reads it any more, and checkpoints have the weights."""
        self._store.remove()
