"""The decoder layers of a causal language model: what is sharded and computed again one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint


def decoder_layers(model: Any) -> list[Any]:
    """In order; transformers names their class as what must not be split over devices."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


@contextmanager
def computed_again(model: Any, wanted: bool) -> Iterator[None]:
    """Layers that keep only their inputs, and are computed again when their gradients are."""
    layers = decoder_layers(model) if wanted else []
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # what the class defines shows again
