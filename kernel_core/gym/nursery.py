"""The root of the gym's processes: imports torch and Triton once, then forks judges and their zygotes.

    nursery ── judge (trusted) ── zygote (torch + Triton's interpreter) ── runner or replay, one life each
       └────── compiler nursery ── zygote (Triton's compiler) ── compile job, one life each

    nursery ── judge of a GPU ── zygotes (torch + Triton) ── warm runner or replay, one life each

Nothing outlives the nursery's master: it ends everything when the master's socket closes.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable

from kernel_core.gym import sandbox, wire, zygote

_REAP_INTERVAL_S = 0.5


def main(descriptor: int, base: str, device: str) -> None:
    """Serve `judge` requests (a socket to its pool attached) until the pool goes away; then remove `base`,
    where everybody's temporary files lie."""
    pool = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seat = _seat_on_gpus(pool) if device == "cuda" else _seat_on_host(pool)
    sandbox.adopt_orphans()
    wire.send(pool, {"ready": os.getpid()})
    while True:
        readable, _, _ = select.select([pool], [], [], _REAP_INTERVAL_S)
        _reap()
        if not readable:
            continue
        try:
            message = wire.receive(pool, take_descriptors=True)
        except wire.ChannelClosed:
            _end_everything(base)
        [to_pool] = message.descriptors
        seat(to_pool, int(message.header["gpu"]))
        os.close(to_pool)
        wire.send(pool, {"seated": True})


def _seat_on_host(pool: socket.socket) -> Callable[[int, int], None]:
    """A judge process for each seat, each with a compiler beside it."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        pool.close()
        ours.close()
        _serve_compilers(theirs)
        os._exit(0)
    theirs.close()
    os.environ["TRITON_INTERPRET"] = "1"
    from kernel_core.gym.judge_process import live, warm_up

    warm_up()

    def seat(to_pool: int, _: int) -> None:
        to_compiler, for_compiler = socket.socketpair()
        wire.send(ours, {"do": "zygote"}, descriptors=(for_compiler.fileno(),))
        for_compiler.close()
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                pool.close()
                ours.close()
                sandbox.die_with_parent()
                live(socket.socket(fileno=to_pool), to_compiler)
            os._exit(0)
        to_compiler.close()

    return seat


def _seat_on_gpus(pool: socket.socket) -> Callable[[int, int], None]:
    """One judge process a GPU, with as many seats as are asked for. Nothing here may touch CUDA, whose
    state does not survive a fork."""
    from kernel_core.gym import compile_gate
    from kernel_core.gym.judge_process import live_on_gpu

    compile_gate.warm_up()
    judges: dict[int, socket.socket] = {}

    def seat(to_pool: int, gpu: int) -> None:
        if gpu in judges:
            with contextlib.suppress(wire.ChannelClosed):
                return wire.send(judges[gpu], {"do": "seat"}, descriptors=(to_pool,))
            judges.pop(gpu).close()
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                for other in (pool, ours, *judges.values()):
                    other.close()
                sandbox.die_with_parent()
                live_on_gpu(theirs, gpu)
            os._exit(0)
        theirs.close()
        judges[gpu] = ours
        wire.send(ours, {"do": "seat"}, descriptors=(to_pool,))
        return None

    return seat


def _serve_compilers(control: socket.socket) -> None:
    """Import Triton's compiler, without torch; fork one zygote a request."""
    sandbox.die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.environ.pop("TRITON_INTERPRET", None)
    from kernel_core.gym import compile_gate

    compile_gate.warm_up()
    while True:
        try:
            message = wire.receive(control, take_descriptors=True)
        except wire.ChannelClosed:
            return
        [descriptor] = message.descriptors
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with contextlib.suppress(BaseException):
                zygote.serve(socket.socket(fileno=descriptor), {"compile": compile_gate.compile_launches})
            os._exit(0)
        os.close(descriptor)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_everything(base: str) -> None:
    """Kill every descendant, however it was orphaned, then leave."""
    while True:
        left = zygote.children()
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
