"""Reference weights of a KL term: those with which RL began.

A second model is held beside the one that learns. Under LoRA the base is frozen and the same for both, so
that only the adapters are held: they take the place of the trained ones for as long as the reference reads.
(`disable_adapter` of peft would give the base model, which differs once a cold start has trained adapters.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from kernel_core.policy.folder import put_adapters
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

Reference = Callable[[], AbstractContextManager[Any]]
"""Opens a block, and yields a model that has the reference weights inside it."""


def hold(folder: Store, policy: TorchPolicy) -> Reference:
    """Load the reference that `TorchPolicy.save` wrote, for a policy that is whole in this process."""
    if policy.base is None:
        return whole_model(TorchPolicy.load(folder, policy.config).model)
    trained = _trained(policy.model)
    own = [parameter.data for parameter in trained]
    _put(trained, [data.clone() for data in own])
    put_adapters(folder, policy.model)
    held = [parameter.data for parameter in trained]
    _put(trained, own)
    return partial(_with_weights, policy.model, held)


def whole_model(model: Any) -> Reference:
    """The reference as a model of its own."""
    return partial(nullcontext, model.requires_grad_(False).eval())


@contextmanager
def _with_weights(model: Any, held: list[torch.Tensor]) -> Iterator[Any]:
    """Other values for the weights that train.

    Tensors are swapped, not copied, so a graph built before the block still holds its saved tensors.
    """
    trained = _trained(model)
    own = [parameter.data for parameter in trained]
    try:
        _put(trained, held)
        yield model
    finally:
        _put(trained, own)


def _trained(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _put(parameters: list[Any], values: list[torch.Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.data = value
