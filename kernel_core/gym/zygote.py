"""A warm process that forks one caged child a job, and ends it when told.

It is forked before its judge has seen any request, so it and its children never hold a secret. Its
master speaks to it over a socket: `spawn` (with the child's own channel attached) and `end`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_core.gym import sandbox, wire
from kernel_core.gym.limits import Cage

Job = Callable[[socket.socket, dict[str, Any]], None]
"""What a child does with its channel; the dictionary tells it which features its cage has."""

_END_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child went: its exit code, or the signal that ended it."""

    exit_code: int | None
    signal_number: int | None


def serve(control: socket.socket, jobs: dict[str, Job]) -> None:
    """Fork children on request until the master goes away. Never returns while it lives."""
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    inherited = ("network",) if sandbox.leave_network() else ()
    namespaces = sandbox.ProcessNamespaces()
    gc.collect()
    gc.freeze()
    while True:
        try:
            message = wire.receive(control, take_descriptors=True)
        except wire.ChannelClosed:
            return
        if message.header["do"] == "end":
            ended = _end(int(message.header["pid"]))
            wire.send(control, {"exit": ended.exit_code, "signal": ended.signal_number})
            continue
        namespaces.prepare_child()
        features = (*inherited, *(("process namespace", "processes") if namespaces.available else ()))
        [descriptor] = message.descriptors
        pid = os.fork()
        if pid == 0:
            control.detach()
            _live_once(jobs[message.header["job"]], descriptor, Cage(**message.header["cage"]), features)
        os.close(descriptor)
        wire.send(control, {"pid": pid})


def _live_once(job: Job, descriptor: int, cage: Cage, inherited: tuple[str, ...]) -> None:
    """The whole life of a child. It leaves through `os._exit`, so no handler of ours runs in it."""
    code = 70
    try:
        for name in ("TRITON_CACHE_DIR", "TMPDIR", "HOME"):
            os.environ[name] = cage.folder
        tempfile.tempdir = cage.folder
        os.chdir(cage.folder)
        features = sandbox.confine(cage, inherited, keep=(descriptor,))
        job(socket.socket(fileno=descriptor), {"features": features})
        code = 0
    except wire.ChannelClosed:
        code = 71
    finally:
        os._exit(code)


def _end(pid: int) -> Ended:
    """Kill a child with everything it started, and reap it."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    _end_orphans()
    if os.WIFSIGNALED(status):
        return Ended(exit_code=None, signal_number=os.WTERMSIG(status))
    return Ended(exit_code=os.WEXITSTATUS(status), signal_number=None)


def _end_orphans() -> None:
    """Kill and reap descendants that a child left behind (possible without a process namespace)."""
    give_up = time.monotonic() + _END_GRACE_S
    while time.monotonic() < give_up:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            for child in children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.001)


def children() -> list[int]:
    """Process ids of this process's children, adopted ones too."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


class Caged:
    """A running child as its master sees it: a channel to it, and the means to end it."""

    def __init__(self, control: socket.socket, job: str, cage: Cage) -> None:
        ours, theirs = socket.socketpair()
        self.channel = ours
        self._control = control
        header = {"do": "spawn", "job": job, "cage": cage.to_json()}
        wire.send(control, header, descriptors=(theirs.fileno(),))
        theirs.close()
        self._pid = int(wire.receive(control).header["pid"])

    def end(self) -> Ended:
        """Kill it if it still lives; say how it went. A natural exit that came first is what counts."""
        self.channel.close()
        wire.send(self._control, {"do": "end", "pid": self._pid})
        header = wire.receive(self._control).header
        return Ended(exit_code=header["exit"], signal_number=header["signal"])
