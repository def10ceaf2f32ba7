"""The root of the gym's processes: imports torch and Triton once, then forks judges and their fork servers.

    fork root ── judge (trusted) ── fork server (torch, Triton's interpreter) ── runner or replay
       └─────── compiler root ── fork server (Triton's compiler) ── compile job

    fork root ── judge of a GPU ── fork servers (torch, Triton) ── warm runner or replay

Each child of a fork server has one life. Nothing outlives the fork root's master: it ends everything when the
master's socket closes.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Iterator

from kernel_core.gym.channel import framing
from kernel_core.gym.sandbox import fork_server, sandbox

_REAP_INTERVAL_S = 0.5


def main(descriptor: int, base: str, device: str) -> None:
    """Serve `judge` requests (a socket to its pool attached) and `end` requests until the pool goes away;
    then remove `base`, where everybody's temporary files lie."""
    pool = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    judges: HostJudges | GpuJudges = GpuJudges(pool) if device == "cuda" else HostJudges(pool)
    sandbox.adopt_orphans()
    framing.send(pool, {"ready": os.getpid()})
    while True:
        readable, _, _ = select.select([pool], [], [], _REAP_INTERVAL_S)
        _reap()
        if not readable:
            continue
        try:
            message = framing.receive(pool, take_descriptors=True)
        except framing.ChannelClosed:
            _end_everything(base)
        place = int(message.header["place"])
        if message.header["do"] == "judge":
            [to_pool] = message.descriptors
            judges.seat(to_pool, place)
            os.close(to_pool)
        else:
            judges.end(place)
        framing.send(pool, {"done": True})


class HostJudges:
    """A judge process for each place, each with a compiler beside it."""

    def __init__(self, pool: socket.socket) -> None:
        self._pool = pool
        self._lives: dict[int, _Life] = {}
        self._compilers, theirs = socket.socketpair()
        if os.fork() == 0:
            pool.close()
            self._compilers.close()
            _serve_compilers(theirs)
            os._exit(0)
        theirs.close()
        os.environ["TRITON_INTERPRET"] = "1"
        from kernel_core.gym.processes import judge_main

        judge_main.warm_up()
        _hide_the_interpreter()
        _keep_no_more_bytecode()
        self._live = judge_main.live

    def seat(self, to_pool: int, place: int) -> None:
        """Hand a fresh judge a socket to its pool; it has one seat."""
        self.end(place)
        to_compiler, for_compiler = socket.socketpair()
        framing.send(self._compilers, {"do": "fork_server"}, descriptors=(for_compiler.fileno(),))
        for_compiler.close()
        self._lives[place] = life = _Life()
        if life.is_child:
            with _leaving_last_words():
                self._pool.close()
                self._compilers.close()
                sandbox.die_with_parent()
                self._live(socket.socket(fileno=to_pool), to_compiler)
            os._exit(0)
        to_compiler.close()

    def end(self, place: int) -> None:
        """Kill the judge of a place, if it lives."""
        if place in self._lives:
            self._lives.pop(place).end()


class GpuJudges:
    """One judge process a GPU, with the requested number of seats. No code here may touch CUDA: its state
    does not survive a fork."""

    def __init__(self, pool: socket.socket) -> None:
        from kernel_core.gym.processes import cuda_workers, judge_main
        from kernel_core.gym.untrusted.compile import compile_job

        compile_job.warm_up()
        cuda_workers.load_triton_driver()
        judge_main.load_late_modules()
        _keep_no_more_bytecode()
        self._pool = pool
        self._live = judge_main.live_on_gpu
        self._lives: dict[int, _Life] = {}
        self._channels: dict[int, socket.socket] = {}

    def seat(self, to_pool: int, place: int) -> None:
        """Hand the judge of a place a socket to its pool; fork one where none lives."""
        if place in self._channels:
            with contextlib.suppress(framing.ChannelClosed):
                return framing.send(self._channels[place], {"do": "seat"}, descriptors=(to_pool,))
            self.end(place)
        ours, theirs = socket.socketpair()
        self._lives[place] = life = _Life()
        if life.is_child:
            with _leaving_last_words():
                for other in (self._pool, ours, *self._channels.values()):
                    other.close()
                sandbox.die_with_parent()
                self._live(theirs, place)
            os._exit(0)
        theirs.close()
        self._channels[place] = ours
        framing.send(ours, {"do": "seat"}, descriptors=(to_pool,))
        return None

    def end(self, place: int) -> None:
        """Kill the judge of a place, if it lives."""
        if place in self._channels:
            self._channels.pop(place).close()
            self._lives.pop(place).end()


def _keep_no_more_bytecode() -> None:
    """Bytecode of the modules imported so far is kept for every later fork root. From here on candidates'
    modules are imported too."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@contextlib.contextmanager
def _leaving_last_words() -> Iterator[None]:
    """The cause of a judge's death is logged before it ends."""
    try:
        yield
    except BaseException:
        traceback.print_exc()


class _Life:
    """A forked process, named by a descriptor: its number may be another's once it is reaped."""

    def __init__(self) -> None:
        pid = os.fork()
        self.is_child = pid == 0
        self._handle = -1 if self.is_child else os.pidfd_open(pid)

    def end(self) -> None:
        """Kill the child if it lives."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        os.close(self._handle)


def _hide_the_interpreter() -> None:
    """Some libraries leave out their autotuner where the environment asks for the interpreter. A kernel is
    judged as it is on a GPU, so Triton is told in another way."""
    import triton

    triton.knobs.runtime.interpret = True
    del os.environ["TRITON_INTERPRET"]


def _serve_compilers(control: socket.socket) -> None:
    """Import Triton's compiler, without torch; fork one fork server a request."""
    sandbox.die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.environ.pop("TRITON_INTERPRET", None)
    from kernel_core.gym.untrusted.compile import compile_job

    compile_job.warm_up()
    _keep_no_more_bytecode()
    while True:
        try:
            message = framing.receive(control, take_descriptors=True)
        except framing.ChannelClosed:
            return
        [descriptor] = message.descriptors
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with contextlib.suppress(BaseException):
                fork_server.serve(socket.socket(fileno=descriptor), {"compile": compile_job.compile_launches})
            os._exit(0)
        os.close(descriptor)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_everything(base: str) -> None:
    """Kill every descendant, however it was orphaned, then leave."""
    while True:
        left = fork_server.children()
        if not left:
            shutil.rmtree(base, ignore_errors=True)
            os._exit(0)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
