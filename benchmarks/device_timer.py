"""Times calls on a GPU as the judge times kernels: L2 flushed, by device events."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from kernel_core.gym.channel.busy_gpu import FLUSH_BYTES, HEAD_START_S, keep_busy


class DeviceTimer:
    """With memory of its own to flush the cache by. Without the head start the host's part is in the times,
    as far as flushing does not hide it."""

    def __init__(self, *, head_start: bool = True) -> None:
        self._head_start_s = HEAD_START_S if head_start else 0.0
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def call_ms(self, operation: Callable[[], object]) -> float:
        """One call."""
        torch.cuda.synchronize()
        self._flush.zero_()
        if self._head_start_s:
            keep_busy(self._head_start_s)
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
