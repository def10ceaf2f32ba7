"""What is taken down while a trace is replayed: counts on a CPU, device times on a GPU."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import torch

from kernel_core.gym import meter as metering
from kernel_core.gym.clock import FLUSH_BYTES, keep_busy
from kernel_core.gym.kernel_use import Resources
from kernel_core.gym.structure import same_bytes
from kernel_core.gym.work import OperatorCounter, Work

_HEAD_START_S, _HOST_S_BY_OPERATION, _MAX_HEAD_START_S = 5e-4, 1e-4, 0.1
"""How long the GPU is kept busy before a timed pass."""


class Conduct(Protocol):
    """Wraps each operation of a pass."""

    def begin(self, operations: Sequence[dict[str, Any]]) -> None:
        """A pass over these begins."""
        ...

    def operator(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Around an operator of torch's."""
        ...

    def launch(
        self, name: str, storages: list[Any], tensors: list[torch.Tensor]
    ) -> contextlib.AbstractContextManager[None]:
        """Around a launch of the candidate's kernel; `tensors` are its arguments."""
        ...

    def launched(self, look: Callable[[], Resources | None]) -> None:
        """A kernel was launched; `look` tells what it takes of the device."""
        ...

    def options(self, recorded: dict[str, int]) -> dict[str, int]:
        """Launch options that the device knows."""
        ...

    def finish(self) -> list[Any]:
        """The works of the pass."""
        ...


class Counted:
    """Bytes and operations of each launch, by the interpreter's meter."""

    def __init__(self) -> None:
        self._meter = metering.Meter()
        metering.install(self._meter)
        self._works: list[Work] = []

    def begin(self, operations: Sequence[dict[str, Any]]) -> None:
        """Forget the last pass."""
        self._works = []

    @contextlib.contextmanager
    def operator(self, name: str) -> Iterator[None]:
        """Counted by its shapes."""
        with OperatorCounter() as counter:
            yield
        self._works += counter.works

    @contextlib.contextmanager
    def launch(self, name: str, storages: list[Any], tensors: list[torch.Tensor]) -> Iterator[None]:
        """Counted access by access."""
        before = [tensor.clone() for tensor in tensors]
        self._meter.begin(storages)
        yield
        self._works.append(
            Work(
                name=name,
                own=True,
                bytes_accessed=self._meter.bytes_accessed,
                bytes_distinct=self._meter.bytes_distinct,
                operations=self._meter.useful_operations,
                padded=dict(self._meter.operations),
                balance=min(1.0, self._meter.balance),
                copies_only=copies_only(before, tensors),
            )
        )

    def launched(self, look: Callable[[], Resources | None]) -> None:
        """The interpreter takes nothing."""

    def options(self, recorded: dict[str, int]) -> dict[str, int]:
        """The interpreter knows none."""
        return {}

    def finish(self) -> list[Work]:
        """The works of the pass."""
        return self._works


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """One operator or launch as the GPU did it."""

    name: str
    own: bool
    device_ms: float
    copies_only: bool = False
    resources: Resources | None = None
    """Of a launch of the candidate's."""

    def to_json(self) -> dict[str, Any]:
        """As it travels in a header."""
        return asdict(self)


class Timed:
    """Device time of each operation, by events around it.

    The first pass only looks whether launches merely copy. Later passes begin with the GPU kept busy until
    the host has queued everything, so that no time between events is the host's.
    """

    def __init__(self) -> None:
        self._is_first = True
        self._library_works = False
        self._copies: list[bool] = []
        self._resources: list[Resources | None] = []
        self._marks: list[tuple[str, bool, Any, Any]] = []

    def begin(self, operations: Sequence[dict[str, Any]]) -> None:
        """A new pass."""
        self._marks = []
        self._library_works = any("op" in operation for operation in operations)
        torch.cuda.synchronize()
        if not self._is_first:
            torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda").zero_()
            head_start_s = min(_HEAD_START_S + len(operations) * _HOST_S_BY_OPERATION, _MAX_HEAD_START_S)
            keep_busy(head_start_s)

    @contextlib.contextmanager
    def operator(self, name: str) -> Iterator[None]:
        """Between events."""
        yield from self._between(name, own=False)

    @contextlib.contextmanager
    def launch(self, name: str, storages: list[Any], tensors: list[torch.Tensor]) -> Iterator[None]:
        """Between events; the first time, where torch's operators work too, its arguments before and after
        are compared as well."""
        if not self._is_first or not self._library_works:
            yield from self._between(name, own=True)
            self._copies.append(False)
            return
        before = [tensor.clone() for tensor in tensors]
        yield from self._between(name, own=True)
        self._copies.append(copies_only(before, tensors))

    def launched(self, look: Callable[[], Resources | None]) -> None:
        """Looked at once; it does not change between passes."""
        if self._is_first:
            self._resources.append(look())

    def _between(self, name: str, own: bool) -> Iterator[None]:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        yield
        end.record()
        self._marks.append((name, own, start, end))

    def options(self, recorded: dict[str, int]) -> dict[str, int]:
        """As they were."""
        return recorded

    def finish(self) -> list[DeviceWork]:
        """The works of the pass."""
        torch.cuda.synchronize()
        self._is_first = False
        copies, resources = iter(self._copies), iter(self._resources)
        return [
            DeviceWork(
                name,
                own,
                start.elapsed_time(end),
                copies_only=own and next(copies, False),
                resources=next(resources, None) if own else None,
            )
            for name, own, start, end in self._marks
        ]


def median_times(passes: Sequence[list[DeviceWork]], first: Sequence[DeviceWork]) -> list[DeviceWork]:
    """The works of the first pass with the median of the later passes' times."""
    return [
        replace(work, device_ms=statistics.median(one[index].device_ms for one in passes))
        for index, work in enumerate(first)
    ]


def copies_only(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    """Whether every tensor that changed now equals another argument as it was: the launch only copied."""
    changed = [(index, tensor) for index, tensor in enumerate(after) if not same_bytes(tensor, before[index])]
    return bool(changed) and all(
        any(
            other != index and _looks_like(before[other], tensor) and same_bytes(before[other], tensor)
            for other in range(len(before))
        )
        for index, tensor in changed
    )


def _looks_like(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.numel() == right.numel()
