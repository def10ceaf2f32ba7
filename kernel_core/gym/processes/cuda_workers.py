"""Sandboxed processes that wait beside a GPU with its context up, for one job each. A process that replayed a
trace runs no host code of a candidate. After it has forgotten the trace, it waits for another."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import os
import queue
import resource
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.channel import framing
from kernel_core.gym.channel.cuda_driver import call_driver
from kernel_core.gym.sandbox.fork_server import Caged, ForkServer, ForkServerLost
from kernel_core.gym.sandbox.limits import Cage
from kernel_core.gym.timing.idle_gpu import MemoryProbe
from kernel_core.gym.untrusted.candidate import baseline_runner, runner
from kernel_core.gym.untrusted.replay import replay
from kernel_core.gym.workers.child import ChildSession, cage_folder
from kernel_core.gym.workers.gpu_locks import Drawn, GpuLock, nothing_drawn

_START_TIMEOUT_S = 60.0
_STARTED_TOGETHER = 4
QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "2", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
"""Environment variables that limit the hardware queues of a process's context."""
_HELD_BACK_BYTES = 16 << 30
_MAX_PROCESSES = 256
"""A GPU's context has threads; Triton starts an assembler and a C compiler."""
_FILE_BYTES = 1 << 30
_JOBS = {"runner": runner.run, "replay": replay.replay, "baseline": baseline_runner.run}
_USES, _RESTING = 16, 4
"""The number of traces that one process replays, and the number of such processes that wait."""


def bring_up() -> None:
    """Each warm process runs this before its sandbox closes. It does work that nearly every candidate would
    pay for, and the first use of device operators, which loads their code."""
    # With the usual eight queues a context takes nearly twice as long to start and to end.
    os.environ.update(QUEUES)
    torch.set_num_threads(1)
    call_driver("cuInit", ctypes.c_uint32(0))  # a library that is loaded later is an event of the candidate's
    square = torch.ones(16, 16, device="cuda")
    (square @ square).fill_(0).copy_(square)
    raw = torch.full((64,), 1, dtype=torch.uint8, device="cuda")
    raw[:8] = raw[-8:] = 2
    bool((raw.clone()[:8] == 2).all() & (raw.fill_(3)[-8:] == 3).all())
    torch.empty(64, dtype=torch.int32, device="cuda").zero_()
    torch.cuda.Event(enable_timing=True).record()
    torch.cuda.synchronize()


def load_triton_driver() -> None:
    """Make Triton's driver the active one. The first use has half of it built by a C compiler, unless the
    process's cache folder has it. It touches no GPU."""
    nvidia: Any = importlib.import_module("triton.backends.nvidia.driver")
    triton.runtime.driver.set_active(nvidia.CudaDriver())


def wait_for_job(channel: socket.socket, cage: dict[str, Any]) -> None:
    """Say that the context is up, then do what is asked; a job that is done once gets no time for more."""
    framing.send(channel, {"warm": True})
    header = framing.receive(channel).header
    resource.setrlimit(resource.RLIMIT_CPU, (header["cpu_seconds"], header["cpu_seconds"]))
    _JOBS[header["job"]](channel, cage)


@dataclass(slots=True)
class _WarmChild:
    """A warm process, its folder, and the number of its jobs."""

    stack: contextlib.ExitStack
    caged: Caged
    uses: int = 0


class CudaWorkers:
    """Warm processes of one GPU, replaced in the background as they are used."""

    device = "cuda"

    def __init__(self, config: GymConfig, fork_servers: list[ForkServer], base: str) -> None:
        self._config = config
        self._base = base
        self._turns = GpuLock()
        self._fork_servers = itertools.cycle(fork_servers)
        self._warm: queue.Queue[_WarmChild | str] = queue.Queue()
        self._resting: deque[_WarmChild] = deque()
        self._wanted = threading.Semaphore(0)
        self._births = GpuLock()
        self._probe = MemoryProbe()
        threading.Thread(target=self._replenish, daemon=True).start()

    @contextlib.contextmanager
    def open_child(self, job: str, *, fresh: bool = True, weight_bytes: int = 0) -> Iterator[ChildSession]:
        """See `workers.Workers`. Only replays may be used again."""
        waiting = (None if fresh else self._take_resting()) or self._take()
        talk = ChildSession(waiting.caged, self._config.deadline_s, is_fresh=waiting.uses == 0)
        waiting.uses += 1
        try:
            if talk.is_fresh:
                # A replay takes several traces, and a compiler of references takes long.
                seconds = self._cpu_seconds * (1 if job == "runner" else _USES)
                talk.tell({"job": job, "cpu_seconds": seconds})
            yield talk
        finally:
            if talk.is_as_new and waiting.uses < _USES and len(self._resting) < _RESTING:
                self._resting.append(waiting)
            else:
                # Much memory is given back with the process.
                with waiting.stack, self._turns.share():
                    talk.end()

    @contextlib.contextmanager
    def share(self) -> Iterator[None]:
        """See `workers.Workers`."""
        with self._turns.share(), _left_tidy():
            yield

    @contextlib.contextmanager
    def draw(self) -> Iterator[Drawn]:
        """See `workers.Workers`."""
        with self._turns.draw() as drawn, _left_tidy():
            yield drawn

    @contextlib.contextmanager
    def alone(self, *, still: bool = False) -> Iterator[Drawn]:
        """See `workers.Workers`. It begins when memory that others gave back is cleared."""
        with self._births.alone() if still else contextlib.nullcontext(), self._turns.alone():
            self._probe.wait()
            yield nothing_drawn

    def _replenish(self) -> None:
        """Bring up as many as are missing, a few together. It needs no turn: contexts that come up beside a
        kernel that is timed do not change its time (docs/decisions, 0011), unless it is a long one,
        which the work of others interrupts."""
        count = self._config.warm_runners
        while True:
            with self._births.share():
                try:
                    started = [self._start() for _ in range(count)]
                except ForkServerLost:
                    # Without its fork servers a judge cannot work: its pool notices the end and starts
                    # another.
                    os._exit(1)
                for waiting in started:
                    self._warm.put(_wait_until_warm(waiting))
            count = 1
            self._wanted.acquire()
            while count < _STARTED_TOGETHER and self._wanted.acquire(blocking=False):
                count += 1

    @property
    def _cpu_seconds(self) -> int:
        """The CPU seconds for one job, and for the start."""
        return 4 * int(self._config.deadline_s) + 20

    def _start(self) -> _WarmChild:
        stack = contextlib.ExitStack()
        folder, user_id = stack.enter_context(cage_folder(self._base))
        cage = Cage(
            folder=folder,
            user_id=user_id,
            memory_bytes=self._config.memory_mb << 20,
            cpu_seconds=_USES * self._cpu_seconds,
            max_processes=_MAX_PROCESSES,
            file_bytes=_FILE_BYTES,
            device="cuda",
        )
        return _WarmChild(stack, next(self._fork_servers).spawn("warm", cage))

    def _take_resting(self) -> _WarmChild | None:
        with contextlib.suppress(IndexError):
            return self._resting.pop()
        return None

    def _take(self) -> _WarmChild:
        """A process with its context up. Raises `GymUnavailable`."""
        reason = ""
        for _ in range(3):
            taken = self._warm.get()
            self._wanted.release()
            if not isinstance(taken, str):
                return taken
            reason = taken
        raise GymUnavailable(
            f"no process with a GPU context could be started ({reason}); look at nvidia-smi for a GPU that "
            "has failed or is full, then run again"
        )


@contextlib.contextmanager
def _left_tidy() -> Iterator[None]:
    """Wait for queued work and release cached memory at the end of a turn. Queued work would run beside a
    timed call, and cached memory would be missing to candidates."""
    try:
        yield
    finally:
        torch.cuda.synchronize()
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _HELD_BACK_BYTES:
        torch.cuda.empty_cache()


def _wait_until_warm(waiting: _WarmChild) -> _WarmChild | str:
    """The process, or why it is not there."""
    try:
        framing.receive(waiting.caged.channel, deadline=time.monotonic() + _START_TIMEOUT_S)
    except (framing.ChannelClosed, framing.ChannelTimeout) as error:
        ended = waiting.caged.end()
        waiting.stack.close()
        return f"{error}; exit code {ended.exit_code}, signal {ended.signal_number}"
    return waiting
