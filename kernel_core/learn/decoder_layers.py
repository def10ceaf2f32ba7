"""Decoder layers of a causal language model: the units of sharding, compiling and gradient checkpointing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from kernel_core.policy.fast_decode.patched_modules import lent


def decoder_layers(model: Any) -> list[Any]:
    """Return the decoder layers in order; transformers names their class as one not to split over devices.

    (A sharded layer has a class of its own, made of that one.)
    """
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if names & {kind.__name__ for kind in type(module).__mro__}]


def compiled(model: Any, enabled: bool) -> AbstractContextManager[None]:
    """Layers that `torch.compile` fuses, once for sequences of all lengths."""
    layers = decoder_layers(model) if enabled else []
    return lent([(layer, torch.compile(layer.forward, dynamic=True)) for layer in layers])


def computed_again(model: Any, enabled: bool) -> AbstractContextManager[None]:
    """Layers that keep only their inputs, and are computed again when their gradients are."""
    layers = decoder_layers(model) if enabled else []
    return lent([(layer, partial(checkpoint, layer.forward, use_reentrant=False)) for layer in layers])
