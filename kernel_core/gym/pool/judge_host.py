"""Hosts of judges: a machine that starts them, ends them and carries requests to them."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.channel import framing
from kernel_core.python_module import import_environment, module_command

_START_TIMEOUT_S = 180.0


class JudgeLost(Exception):
    """A judge gave no answer: it died, hangs or sent an invalid message."""


class HostLost(JudgeLost):
    """No judge can be started on this host any more."""


class Line(Protocol):
    """A seat at a judge. Its holder sends one request at a time."""

    def ask(self, header: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """The judge's answer. Raises `JudgeLost`."""
        ...

    def hang_up(self) -> None:
        """Leave the seat."""
        ...


class Host(Protocol):
    """A machine, or a part of a cluster, with places for judges that are numbered from 0."""

    def connect(self, place: int) -> Line:
        """A line to the judge of a place, which is started if none lives.

        Raises `GymUnavailable` when it cannot be started now, `HostLost` when it never can be.
        """
        ...

    def end_judge(self, place: int) -> None:
        """Kill the judge of a place, however busy it is."""
        ...

    def close(self) -> None:
        """End every process."""
        ...


def last_words(log: Path, since: int = 0) -> str:
    """The last line of a log, unless it is among its first `since` bytes."""
    text = log.read_bytes()[since:].decode(errors="replace") if log.exists() else ""
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")


class SocketLine:
    """A line to a judge of this machine, which writes to `log` what it dies of."""

    def __init__(self, channel: socket.socket, log: Path) -> None:
        self._channel = channel
        self._log = log
        self._heard = log.stat().st_size if log.exists() else 0

    def ask(self, header: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """See `Line`."""
        try:
            framing.send(self._channel, header)
            return framing.receive(self._channel, deadline=time.monotonic() + patience_s).header
        except (framing.ChannelClosed, framing.ChannelTimeout, framing.ChannelGarbage) as error:
            words = last_words(self._log, self._heard)
            raise JudgeLost(f"{error}; its last words: {words}" if words else str(error)) from error

    def hang_up(self) -> None:
        """See `Line`."""
        self._channel.close()


class LocalHost:
    """The judges of this machine, which are forked by a fork root; a fork root that dies is replaced. On a
    CPU the gyms of this process share one.

    `store` is where they may keep what outlives them."""

    def __init__(self, config: GymConfig, store: str | None = None) -> None:
        self._config = config
        self._store = store
        self._is_shared = config.device == "cpu"  # a GPU has one judge, by its own number
        self._roots = SHARED if self._is_shared else ForkRoots(config.device)
        self._numbers: dict[int, int] = {}
        """The numbers of its places at the fork root."""
        self._lock = threading.Lock()
        self._closed = False
        self.base = self._roots.enter()
        """The folder under which judges keep their temporary files."""
        try:
            self._roots.living()
        except GymUnavailable:
            self.close()
            raise

    def connect(self, place: int) -> Line:
        """See `Host`."""
        with self._lock:
            if self._closed:
                raise HostLost("the gym was closed")
            fork_root = self._roots.living()
            channel = fork_root.new_channel(self._number(place))
        hello = {"config": self._config.model_dump(mode="json"), "base": self.base, "store": self._store}
        with contextlib.suppress(
            framing.ChannelClosed
        ):  # a judge that is already dead fails at the first request
            framing.send(channel, hello)
        return SocketLine(channel, fork_root.log)

    def end_judge(self, place: int) -> None:
        """See `Host`."""
        with self._lock:
            self._roots.end_judge(self._number(place))

    def close(self) -> None:
        """See `Host`; removes every temporary file too."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for number in self._numbers.values():
                self._roots.end_judge(number)
            self._roots.leave(self.base)

    def _number(self, place: int) -> int:
        return self._numbers.setdefault(place, next(_NUMBERS) if self._is_shared else place)


class ForkRoots:
    """The fork root of several gyms: it starts when one needs it, and ends when the last one has left."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a fork of this process: what was started is the parent's."""
        self._lock = threading.Lock()
        self._num_users = 0
        self._base = ""
        self._fork_root: _ForkRoot | None = None

    def enter(self) -> str:
        """Begin to use it; gives a folder for temporary files."""
        with self._lock:
            if not self._num_users:
                self._base = _new_folder(None)
            self._num_users += 1
            return _new_folder(self._base)

    def leave(self, folder: str) -> None:
        """Use it no more, nor the folder."""
        with self._lock:
            self._num_users -= 1
            if not self._num_users and self._fork_root is not None:
                self._fork_root.close()
                self._fork_root = None
            shutil.rmtree(folder if self._num_users else self._base, ignore_errors=True)

    def living(self) -> _ForkRoot:
        """It, or another if it has died. Raises `GymUnavailable`."""
        with self._lock:
            if self._fork_root is not None and not self._fork_root.alive:
                self._fork_root.close()
                self._fork_root = None
            if self._fork_root is None:
                self._fork_root = _ForkRoot(self._base, self._device)
            return self._fork_root

    def end_judge(self, number: int) -> None:
        """Have the judge of this number killed."""
        with self._lock:
            if self._fork_root is not None:
                self._fork_root.end_judge(number)


def _new_folder(parent: str | None) -> str:
    folder = tempfile.mkdtemp(prefix="dojo-gym-", dir=parent)
    Path(folder).chmod(0o711)
    return folder


SHARED = ForkRoots("cpu")
_NUMBERS = itertools.count()
"""The numbers of judges on a CPU, over all gyms."""
os.register_at_fork(after_in_child=SHARED.forget)


class _ForkRoot:
    """The process that forks judges, as its master sees it."""

    def __init__(self, base: str, device: str) -> None:
        self._channel, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self.log = Path(base) / "fork_root.log"
        """The log with causes of death of the fork root and its judges."""
        environment = {
            **import_environment(),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        if device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        command = module_command("kernel_core.gym.processes.fork_root", str(theirs.fileno()), base, device)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        theirs.close()
        try:
            framing.receive(self._channel, deadline=time.monotonic() + _START_TIMEOUT_S)
        except (framing.ChannelClosed, framing.ChannelTimeout) as error:
            reason = last_words(self.log) or error
            self.close()
            raise GymUnavailable(f"the judges did not start: {reason}") from error

    @property
    def alive(self) -> bool:
        """True if it still runs."""
        return self._process.poll() is None

    def new_channel(self, place: int) -> socket.socket:
        """Have the judge of a place take a seat; gives the socket to it."""
        ours, theirs = socket.socketpair()
        try:
            self._tell({"do": "judge", "place": place}, (theirs.fileno(),))
        except (framing.ChannelClosed, framing.ChannelTimeout) as error:
            ours.close()
            raise GymUnavailable(f"no judge could be started: {last_words(self.log) or error}") from error
        finally:
            theirs.close()
        return ours

    def end_judge(self, place: int) -> None:
        """Have the judge of a place killed. With a dead fork root, all are dead."""
        with contextlib.suppress(framing.ChannelClosed, framing.ChannelTimeout):
            self._tell({"do": "end", "place": place})

    def close(self) -> None:
        """Close its channel, upon which it ends all it started, and wait until it has."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _tell(self, header: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        with self._lock:
            framing.send(self._channel, header, descriptors=descriptors)
            framing.receive(self._channel, deadline=time.monotonic() + _START_TIMEOUT_S)
