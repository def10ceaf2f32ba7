"""Times calls on a GPU as the judge times kernels: L2 flushed, by device events."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from kernel_core.gym.clock import FLUSH_BYTES


class DeviceTimer:
    """With memory of its own to flush the cache by."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def call_ms(self, operation: Callable[[], object]) -> float:
        """One call."""
        torch.cuda.synchronize()
        self._flush.zero_()
        self._start.record()
        operation()
        self._end.record()
        torch.cuda.synchronize()
        return float(self._start.elapsed_time(self._end))

    def spin(self, milliseconds: float) -> None:
        """Keep the GPU busy for so long."""
        until = time.monotonic() + milliseconds / 1e3
        while time.monotonic() < until:
            self._flush.zero_()
            torch.cuda.synchronize()
