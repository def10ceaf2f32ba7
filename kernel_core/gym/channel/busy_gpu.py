"""Keep a GPU busy: its clocks fall while it waits, and the host needs a head start on it."""

from __future__ import annotations

import torch

FLUSH_BYTES = 256 << 20
"""Several times the L2 cache; what KernelBench writes between calls."""
HEAD_START_S = 5e-4
"""The time that the host has to queue a timed call while the GPU is busy."""
_SPINS = 30
"""Each spin lasts about 0.06 ms."""
_CYCLES_PER_S = 2e9


def spin(flush: torch.Tensor) -> None:
    """Keep the GPU busy for a moment: its clocks fall while it waits."""
    for _ in range(_SPINS):
        flush.zero_()
    torch.cuda.synchronize()


def keep_busy(seconds: float) -> None:
    """Have the GPU wait about so long, while the host queues what comes next."""
    torch.cuda._sleep(int(seconds * _CYCLES_PER_S))
