"""Measurements during the replay of a trace: counts on a CPU, device times on a GPU.

A probe wraps each operation of a pass. `num_passes` measured passes make a good figure.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from kernel_core.gym.channel.busy_gpu import FLUSH_BYTES, keep_busy
from kernel_core.gym.channel.work import OperatorCounter, Work
from kernel_core.gym.untrusted.interpreter import meter_hooks
from kernel_core.gym.untrusted.interpreter.memory_meter import Meter
from kernel_core.gym.untrusted.replay.kernel_resources import KernelResources

_HEAD_START_S, _HOST_S_BY_OPERATION, _MAX_HEAD_START_S = 5e-4, 1e-4, 0.1
"""The time for which the GPU is kept busy before a timed pass."""


class CountingProbe:
    """Bytes and operations of each launch, by the interpreter's meter."""

    num_passes = 1

    def __init__(self) -> None:
        self._meter = Meter()
        meter_hooks.install(self._meter)
        self._works: list[Work] = []
        self._is_measured = False

    def begin(self, operations: Sequence[dict[str, Any]], *, measured: bool) -> None:
        """Forget the last pass. Where nothing is measured, the meter still looks after bounds."""
        self._works = []
        self._is_measured = self._meter.counting = measured

    @contextlib.contextmanager
    def operator(self, name: str) -> Iterator[None]:
        """Counted by its shapes."""
        if not self._is_measured:
            yield
            return
        with OperatorCounter() as counter:
            yield
        self._works += counter.works

    @contextlib.contextmanager
    def launch(self, name: str, storages: list[Any]) -> Iterator[None]:
        """Counted access by access."""
        self._meter.begin(storages)
        yield
        if self._is_measured:
            self._works.append(self._work(name))

    def _work(self, name: str) -> Work:
        return Work(
            name=name,
            own=True,
            bytes_accessed=self._meter.bytes_accessed,
            bytes_distinct=self._meter.bytes_distinct,
            operations=self._meter.useful_operations,
            padded=dict(self._meter.operations),
            balance=min(1.0, self._meter.balance),
        )

    def launched(self, look: Callable[[], KernelResources | None]) -> None:
        """The interpreter takes nothing."""

    def finish(self) -> list[Work]:
        """The works of the pass."""
        return self._works

    def summary(self, passes: Sequence[list[Work]]) -> list[Work]:
        """Counts are the same in each."""
        return passes[-1]


@dataclass(frozen=True, slots=True)
class TimedWork:
    """One operator or launch, timed on the GPU."""

    name: str
    own: bool
    device_ms: float
    copies_only: bool = False
    resources: KernelResources | None = None
    """Resources of a launch of the candidate's."""

    def to_json(self) -> dict[str, Any]:
        """The work as part of a header."""
        return asdict(self)


class TimingProbe:
    """Device time of each operation, by events around it.

    Measured passes begin with the GPU kept busy until the host has queued everything, so that no time
    between events is the host's.
    """

    num_passes = 3

    def __init__(self) -> None:
        self._is_measured = False
        self._resources: list[KernelResources | None] = []
        self._marks: list[tuple[str, bool, Any, Any]] = []

    def begin(self, operations: Sequence[dict[str, Any]], *, measured: bool) -> None:
        """A new pass."""
        self._marks, self._resources, self._is_measured = [], [], measured
        torch.cuda.synchronize()
        if measured:
            torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda").zero_()
            head_start_s = min(_HEAD_START_S + len(operations) * _HOST_S_BY_OPERATION, _MAX_HEAD_START_S)
            keep_busy(head_start_s)

    @contextlib.contextmanager
    def operator(self, name: str) -> Iterator[None]:
        """Between events."""
        yield from self._between(name, own=False)

    @contextlib.contextmanager
    def launch(self, name: str, storages: list[Any]) -> Iterator[None]:
        """Between events."""
        yield from self._between(name, own=True)

    def launched(self, look: Callable[[], KernelResources | None]) -> None:
        """Looked at in each measured pass: it takes the host some microseconds, and the GPU nothing."""
        if self._is_measured:
            self._resources.append(look())

    def _between(self, name: str, own: bool) -> Iterator[None]:
        if not self._is_measured:
            yield
            return
        if torch.cuda.current_stream().query():
            keep_busy(_HEAD_START_S)  # the host has just waited for a copy from or to its memory
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        yield
        end.record()
        self._marks.append((name, own, start, end))

    def finish(self) -> list[TimedWork]:
        """The works of the pass."""
        torch.cuda.synchronize()
        resources = iter(self._resources)
        return [
            TimedWork(name, own, start.elapsed_time(end), resources=next(resources, None) if own else None)
            for name, own, start, end in self._marks
        ]

    def summary(self, passes: Sequence[list[TimedWork]]) -> list[TimedWork]:
        """The works with the median of their times."""
        return [
            replace(work, device_ms=statistics.median(measured[index].device_ms for measured in passes))
            for index, work in enumerate(passes[-1])
        ]


CostProbe = CountingProbe | TimingProbe
