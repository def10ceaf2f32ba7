"""Reference weights of a KL term: those with which RL began.

A second model is held beside the one that learns. Under LoRA the base is frozen and the same for both, so
that only the adapters are held: they take the place of the trained ones for as long as the reference reads.
(`disable_adapter` of peft would give the base model, which differs once a cold start has trained adapters.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernel_core.policy.folder import put_adapters
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store


class ReferenceModel(Protocol):
    """Held weights."""

    def reading(self) -> AbstractContextManager[Any]:
        """Yield a model with the reference weights inside the block."""
        ...


@dataclass(frozen=True)
class HeldModel:
    """Reference as a model of its own."""

    model: Any

    def reading(self) -> AbstractContextManager[Any]:
        """See `ReferenceModel`."""
        return nullcontext(self.model)


@dataclass(frozen=True)
class HeldWeights:
    """Other values for the weights of `model` that train."""

    model: Any
    held: list[torch.Tensor]

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """See `ReferenceModel`.

        Tensors are swapped, not copied, so a graph built before the block still holds its saved tensors.
        """
        trained = _trained(self.model)
        own = [parameter.data for parameter in trained]
        try:
            _put(trained, self.held)
            yield self.model
        finally:
            _put(trained, own)


def hold(folder: Store, policy: TorchPolicy) -> ReferenceModel:
    """Load the reference from a folder that `TorchPolicy.save` wrote, for a policy that is whole in
    this process."""
    if policy.base is None:
        saved = TorchPolicy.load(folder, policy.config)
        return HeldModel(saved.model.requires_grad_(False).eval())
    trained = _trained(policy.model)
    own = [parameter.data for parameter in trained]
    _put(trained, [data.clone() for data in own])
    put_adapters(folder, policy.model)
    held = [parameter.data for parameter in trained]
    _put(trained, own)
    return HeldWeights(policy.model, held)


def _trained(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _put(parameters: list[Any], values: list[torch.Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.data = value
