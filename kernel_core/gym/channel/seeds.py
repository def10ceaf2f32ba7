"""The seed that is public, and those that follow from a secret or a name."""

from __future__ import annotations

import hashlib

import torch

CONSTRUCTION_SEED = 42
"""Public, and KernelBench's: reference and candidate are constructed under it, so that weights agree by
construction too."""


def derive_seed(seed: int, *labels: str | int) -> int:
    """A seed for one purpose, from which the others cannot be told."""
    text = ":".join(str(part) for part in (seed, *labels))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def seed_torch(seed: int, device: str) -> None:
    """Seed torch's generators. Without a GPU `torch.manual_seed` formats the stack for one: 0.26 ms each."""
    (torch.manual_seed if device == "cuda" else torch.default_generator.manual_seed)(seed)
