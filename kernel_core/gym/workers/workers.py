"""Processes for candidates: children of a fork server on the CPU, or warm processes that wait beside a
GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from kernel_core.config import GymConfig
from kernel_core.gym.sandbox.fork_server import ForkServer
from kernel_core.gym.workers.child import ChildSession, open_caged_child
from kernel_core.gym.workers.gpu_locks import Drawn, nothing_drawn

_TIMES_THE_WEIGHTS = 24
"""Addresses that interpreted passes take for each byte of a weight: two copies, marks of accesses twice,
and its record."""


class Workers(Protocol):
    """A judge's interface to the machine."""

    device: str

    def open_child(
        self, job: str, *, fresh: bool = True, weight_bytes: int = 0
    ) -> contextlib.AbstractContextManager[ChildSession]:
        """A sandboxed process that does one job (`runner` or `replay`; on a CPU also `rehearse`, on a GPU
        `baseline`) with weights of so many bytes. It ends with the context, unless it `is_as_new` then. A job
        for which `fresh` is false may get such a process.
        """
        ...

    def share(self) -> contextlib.AbstractContextManager[None]:
        """A turn on the device beside others' turns."""
        ...

    def draw(self) -> contextlib.AbstractContextManager[Drawn]:
        """A turn beside others' turns. No other thread draws inputs meanwhile."""
        ...

    def alone(self, *, still: bool = False) -> contextlib.AbstractContextManager[Drawn]:
        """An exclusive turn on the device, to measure in. With `still` no new process comes up meanwhile."""
        ...


class CpuWorkers:
    """Each job is a fresh child; processors need no turns."""

    device = "cpu"

    def __init__(self, config: GymConfig, runners: ForkServer, base: str) -> None:
        self._config = config
        self._runners = runners
        self._base = base

    @contextlib.contextmanager
    def open_child(self, job: str, *, fresh: bool = True, weight_bytes: int = 0) -> Iterator[ChildSession]:
        """See `Workers`. The memory limit of a candidate counts beyond the problem's weights."""
        with open_caged_child(
            self._runners,
            job,
            self._base,
            self._config.deadline_s,
            memory_bytes=(self._config.memory_mb << 20) + _TIMES_THE_WEIGHTS * weight_bytes,
            cpu_seconds=int(self._config.deadline_s) + 2,
            max_processes=1,
            gpu=self._config.predict_gpu,
        ) as talk:
            yield talk

    def share(self) -> contextlib.AbstractContextManager[None]:
        """See `Workers`."""
        return contextlib.nullcontext()

    def draw(self) -> contextlib.AbstractContextManager[Drawn]:
        """See `Workers`."""
        return contextlib.nullcontext(nothing_drawn)

    def alone(self, *, still: bool = False) -> contextlib.AbstractContextManager[Drawn]:
        """See `Workers`."""
        return contextlib.nullcontext(nothing_drawn)
