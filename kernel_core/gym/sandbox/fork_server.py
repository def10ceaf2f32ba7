"""A warm process that forks one sandboxed child a job, and ends it on request.

It is forked before its judge has seen any request, so it and its children never hold a secret. Its master
speaks to it over a socket: `spawn` (with the child's own channel attached) and `end`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_core.gym.channel import framing
from kernel_core.gym.sandbox import sandbox
from kernel_core.gym.sandbox.limits import Cage

Job = Callable[[socket.socket, dict[str, Any]], None]
"""A child's job with its channel; the dictionary has the features of its sandbox."""

_END_GRACE_S = 10.0


class ForkServerLost(Exception):
    """A fork server died under its judge, and all its children with it: that says nothing about any
    candidate, and the judge cannot go on."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a child: its exit code, or the signal that ended it."""

    exit_code: int | None
    signal_number: int | None


def serve(control: socket.socket, jobs: dict[str, Job], prepare: Callable[[], None] | None = None) -> None:
    """Fork children on request until the master goes away. Never returns while the master lives.

    Each child calls `prepare` before its sandbox closes. It brings a GPU's context up, which the driver
    refuses in a process namespace of its own.
    """
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    inherited = ("network",) if sandbox.leave_network() else ()
    namespaces = sandbox.ProcessNamespaces(wanted=prepare is None)
    alive: set[int] = set()
    gc.collect()
    gc.freeze()
    while True:
        try:
            message = framing.receive(control, take_descriptors=True)
        except framing.ChannelClosed:
            return
        if message.header["do"] == "end":
            ended = _end(int(message.header["pid"]), alive)
            framing.send(control, {"exit": ended.exit_code, "signal": ended.signal_number})
            continue
        namespaces.prepare_child()
        features = (*inherited, *(("process namespace", "processes") if namespaces.available else ()))
        [descriptor] = message.descriptors
        pid = os.fork()
        if pid == 0:
            control.detach()
            cage = Cage(**message.header["cage"])
            _live_once(jobs[message.header["job"]], descriptor, cage, features, prepare or (lambda: None))
        alive.add(pid)
        os.close(descriptor)
        framing.send(control, {"pid": pid})


def _live_once(
    job: Job, descriptor: int, cage: Cage, inherited: tuple[str, ...], prepare: Callable[[], None]
) -> None:
    """The whole life of a child. It leaves through `os._exit`, so no handler of ours runs in it."""
    code = 70
    try:
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TMPDIR", "HOME"):
            os.environ[name] = cage.folder
        os.environ["LOGNAME"] = "candidate"  # torch's compiler asks for a name, and this user has none
        tempfile.tempdir = cage.folder
        os.chdir(cage.folder)
        features = sandbox.confine(cage, inherited, keep=(descriptor,), prepare=prepare)
        job(socket.socket(fileno=descriptor), {"features": features, "device": cage.device, "gpu": cage.gpu})
        code = 0
    except framing.ChannelClosed:
        code = 71
    finally:
        os._exit(code)


def _end(pid: int, alive: set[int]) -> Ended:
    """Kill a child with everything it started, and reap it."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    alive.discard(pid)
    _end_orphans(alive)
    if os.WIFSIGNALED(status):
        return Ended(exit_code=None, signal_number=os.WTERMSIG(status))
    return Ended(exit_code=os.WEXITSTATUS(status), signal_number=None)


def _end_orphans(alive: set[int]) -> None:
    """Kill and reap descendants that a child left behind (possible without a process namespace)."""
    give_up = time.monotonic() + _END_GRACE_S
    while time.monotonic() < give_up:
        orphans = [child for child in children() if child not in alive]
        if not orphans:
            return
        for child in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)


def children() -> list[int]:
    """Process ids of this process's children, adopted ones too."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


class ForkServer:
    """A fork server as its master sees it; threads of the master may share it. Raises `ForkServerLost`."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()

    def spawn(self, job: str, cage: Cage) -> Caged:
        """Fork a sandboxed child."""
        ours, theirs = socket.socketpair()
        with theirs:
            header = {"do": "spawn", "job": job, "cage": cage.to_json()}
            answer = self._ask(header, (theirs.fileno(),))
        return Caged(self, ours, int(answer["pid"]))

    def end(self, pid: int) -> Ended:
        """Kill a child that still lives; gives its end. An earlier natural exit counts."""
        answer = self._ask({"do": "end", "pid": pid})
        return Ended(exit_code=answer["exit"], signal_number=answer["signal"])

    def _ask(self, header: dict[str, Any], descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        try:
            with self._lock:
                framing.send(self._control, header, descriptors=descriptors)
                return framing.receive(self._control).header
        except framing.ChannelClosed as error:
            raise ForkServerLost("a fork server of this judge has died") from error


class Caged:
    """A running child: a channel to it, and the means to end it."""

    def __init__(self, fork_server: ForkServer, channel: socket.socket, pid: int) -> None:
        self.channel = channel
        self._fork_server = fork_server
        self._pid = pid

    def waited_s(self) -> float:
        """Seconds in which the child could run and had no processor. For several threads, the longest wait of
        one thread counts. 0 where the kernel does not count them."""
        waited_ns = [0]
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{self._pid}/task").iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    waited_ns.append(int((thread / "schedstat").read_text().split()[1]))
        return max(waited_ns) / 1e9

    def end(self) -> Ended:
        """Kill the child if it still lives; gives its end."""
        self.channel.close()
        return self._fork_server.end(self._pid)
