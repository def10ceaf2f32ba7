"""Memory of a GPU that several phases and processes share in turn: sampling, judging, updating."""

from __future__ import annotations

import threading

import torch

RECORDING = threading.Lock()
"""Held while a graph is recorded, when no memory may be given back: torch refuses it, from any thread."""
_KEPT_SHARE = 0.05


def release_cached_memory(device: torch.device) -> None:
    """Return what torch keeps of freed memory to the device, where other processes find it."""
    if device.type == "cuda":
        with RECORDING:
            torch.cuda.empty_cache()


def bytes_kept_between(device: torch.device) -> int:
    """Return the memory that a phase may keep on the device while others work, in bytes."""
    if device.type != "cuda":
        return 0
    return int(_KEPT_SHARE * torch.cuda.get_device_properties(device).total_memory)
