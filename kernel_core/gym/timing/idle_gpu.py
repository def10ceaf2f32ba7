"""Waits until a GPU's memory is at rest, before kernels are timed.

Freed memory of any process is cleared in the background, at about 2.3 ms a gigabyte. Meanwhile kernels that
read memory take an eighth longer (docs/decisions/0013). No interface tells when that is over, so a
read of known size is timed until it is as fast as ever.
"""

from __future__ import annotations

import math
import statistics
import time

import torch

from kernel_core.gym.channel.busy_gpu import keep_busy

_PROBE_BYTES = 1 << 29
_READS = 3
_SLOWER = 1.06
_HEAD_START_S = 1e-4
_PATIENCE_S = 0.15


class MemoryProbe:
    """Reads and writes half a gigabyte of its own; `calm_ms` is the least time that this has ever taken."""

    def __init__(self) -> None:
        self._memory = torch.zeros(_PROBE_BYTES // 4, dtype=torch.int32, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.calm_ms = math.inf

    def wait(self) -> None:
        """Read until memory is as fast as ever, or as long as clearing much of it may take. The caller has
        the GPU alone."""
        give_up = time.monotonic() + _PATIENCE_S
        while not self._is_calm() and time.monotonic() < give_up:
            pass

    def read_ms(self) -> float:
        """The time of the read now."""
        keep_busy(_HEAD_START_S)
        self._start.record()
        self._memory.add_(1)
        self._end.record()
        torch.cuda.synchronize()
        return float(self._start.elapsed_time(self._end))

    def _is_calm(self) -> bool:
        now_ms = statistics.median(self.read_ms() for _ in range(_READS))
        self.calm_ms = min(self.calm_ms, now_ms)
        return now_ms <= _SLOWER * self.calm_ms
