"""The times of forward passes, taken in the candidate's process: what they say is a claim.

Device events time each call, after the L2 cache was flushed. Every call has contents and addresses of its
own, and its outputs are kept for the judge. The host has a head start, so that the time is the device's:
Python that runs once in a while needs up to 0.3 ms to launch a kernel, most of the time of a small one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_core.gym.channel.busy_gpu import FLUSH_BYTES, HEAD_START_S, keep_busy, spin
from kernel_core.gym.channel.pytree import flatten


def time_calls(
    model: Any, calls: Sequence[tuple[list[Any], Any]], keep: Callable[[list[Any], Any], None]
) -> list[float]:
    """Milliseconds of each call by device events. Runs in the candidate's process."""
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    gc.disable()
    spin(flush)
    with torch.no_grad():
        for inputs, slots in calls:
            torch.cuda.synchronize()
            flush.zero_()
            keep_busy(HEAD_START_S)
            start.record()
            output = model(*inputs)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
            keep(flatten(output)[1], slots)
            del output
    torch.cuda.synchronize()
    gc.enable()
    return times
