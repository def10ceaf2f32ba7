"""Whether a GPU's memory is at rest: what was given back is cleared for a while, and nobody waits for that.

Measured on an H200: for about 3 ms a gigabyte that was freed, by whomever, kernels that read memory take up
to an eighth longer. Nothing tells when it is over, so a read of known size is timed until it is as fast as
ever.
"""

from __future__ import annotations

import math
import statistics
import time

import torch

_PROBE_BYTES = 1 << 29
_READS = 3
_SLOWER = 1.04
_PATIENCE_S = 0.15


class MemoryProbe:
    """Reads and writes half a gigabyte of its own; `calm_ms` is the least time that this has ever taken."""

    def __init__(self) -> None:
        self._memory = torch.zeros(_PROBE_BYTES // 4, dtype=torch.int32, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.calm_ms = math.inf

    def wait(self) -> None:
        """Until memory is as fast as ever, or for as long as clearing all of it may take. The caller has the
        GPU alone."""
        give_up = time.monotonic() + _PATIENCE_S
        while not self._is_calm() and time.monotonic() < give_up:
            pass

    def _is_calm(self) -> bool:
        now_ms = statistics.median(self._read_ms() for _ in range(_READS))
        self.calm_ms = min(self.calm_ms, now_ms)
        return now_ms <= _SLOWER * self.calm_ms

    def _read_ms(self) -> float:
        self._start.record()
        self._memory.add_(1)
        self._end.record()
        torch.cuda.synchronize()
        return float(self._start.elapsed_time(self._end))
