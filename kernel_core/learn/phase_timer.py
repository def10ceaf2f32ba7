"""Wall clock by phase, and arithmetic that repeats bit for bit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from kernel_core.progress import Progress


class Clock:
    """Seconds by phase, told apart by the labels of the progress that the phase reports."""

    def __init__(self, progress: Progress) -> None:
        self.shown = progress
        self._last = time.monotonic()
        self.seconds: dict[str, float] = defaultdict(float)

    @property
    def total(self) -> float:
        """Seconds counted so far."""
        return sum(self.seconds.values())

    def phase(self, name: str = "") -> Progress:
        """Return a progress callback that adds the time since the last report to its label, or to `name`."""

        def report(label: str, done: int, total: int) -> None:
            self.finish(name or label)
            self.shown(f"{name} {label}".strip(), done, total)

        return report

    def finish(self, name: str) -> None:
        """Add the time since the last report to a phase."""
        now = time.monotonic()
        self.seconds[name] += now - self._last
        self._last = now

    def pass_over(self) -> None:
        """Leave out the time since the last report: another clock has it."""
        self._last = time.monotonic()

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of another clock, phase by phase."""
        for name, number in seconds.items():
            self.seconds[name] += number


@contextmanager
def repeatable(num_threads: int, device: torch.device) -> Iterator[None]:
    """Sums in one order: a fixed number of threads, and on a CPU no algorithm that is free to choose.

    On CUDA this device is the current one: Triton's kernels start there.
    """
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(strict or device.type == "cpu")
    try:
        with torch.accelerator.device_index(device.index):
            yield
    finally:
        torch.use_deterministic_algorithms(strict)
        torch.set_num_threads(threads)
