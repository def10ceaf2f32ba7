"""A GPU in the state that kernels are timed in: awake, and with its memory at rest.

Measured on an H200 (docs/decisions/0013-what-a-timed-call-finds.md): after a pause of 20 ms kernels take up
to a twentieth longer, for 10 to 15 ms. And memory that was given back, by whomever, is cleared in the
background, at about 3 ms a gigabyte, during which kernels that read memory take up to an eighth longer.
Nothing tells when that is over, so a read of known size is timed until it is as fast as ever.
"""

from __future__ import annotations

import math
import statistics
import time

import torch

_PROBE_BYTES = 1 << 29
_READS = 3
_SLOWER = 1.08
_WAKING_S, _STIRRING_S, _PATIENCE_S = 0.015, 0.008, 0.15


class MemoryProbe:
    """Reads and writes half a gigabyte of its own; `calm_ms` is the least time that this has ever taken."""

    def __init__(self) -> None:
        self._memory = torch.zeros(_PROBE_BYTES // 4, dtype=torch.int32, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.calm_ms = math.inf

    def wait(self) -> None:
        """Read until the GPU is awake and memory as fast as ever, or as long as clearing much of it may take.
        The caller has the GPU alone."""
        begun = time.monotonic()
        while True:
            is_calm, seconds = self._is_calm(), time.monotonic() - begun
            if seconds > _PATIENCE_S or (is_calm and seconds > _WAKING_S):
                return

    def stir(self) -> None:
        """Read for a moment, so that a GPU that rested for a moment is awake again."""
        until = time.monotonic() + _STIRRING_S
        while time.monotonic() < until:
            self.read_ms()

    def read_ms(self) -> float:
        """How long the read takes now."""
        self._start.record()
        self._memory.add_(1)
        self._end.record()
        torch.cuda.synchronize()
        return float(self._start.elapsed_time(self._end))

    def _is_calm(self) -> bool:
        now_ms = statistics.median(self.read_ms() for _ in range(_READS))
        self.calm_ms = min(self.calm_ms, now_ms)
        return now_ms <= _SLOWER * self.calm_ms
