"""Trials in caged processes: no network, no files but one folder, bounded memory, and a deadline."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_core.gym.channel import framing
from kernel_core.gym.sandbox import fork_server
from kernel_core.gym.sandbox.limits import Cage
from kernel_core.gym.workers.child import cage_folder

MEMORY_BYTES = 4 << 30
DEADLINE_S = 30.0


class Trials:
    """Warm process that forks one caged child per request. Open it with `open_trials`."""

    def __init__(self, server: fork_server.ForkServer, base: str) -> None:
        self._server = server
        self._base = base

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the child's answer; `reason` in it explains why there is no problem.

        Threads may share this.
        """
        with cage_folder(self._base) as (folder, user_id):
            cage = Cage(
                folder=folder,
                user_id=user_id,
                memory_bytes=MEMORY_BYTES,
                cpu_seconds=2 * int(DEADLINE_S),
                max_processes=1,
            )
            child = self._server.spawn("trial", cage)
            try:
                framing.send(child.channel, request)
                deadline = time.monotonic() + DEADLINE_S
                return framing.receive(child.channel, deadline=deadline, max_blob=0).header
            except framing.ChannelTimeout:
                return {"reason": "takes too long"}
            except (framing.ChannelClosed, framing.ChannelGarbage):
                return {"reason": "ends its process"}
            finally:
                child.end()


@contextlib.contextmanager
def open_trials() -> Iterator[Trials]:
    """Start the warm process; it ends with the block."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            from kernel_core.harvest.trial import serve_trials, warm_up

            warm_up()
            fork_server.serve(theirs, {"trial": serve_trials})
        finally:
            os._exit(0)
    theirs.close()
    with tempfile.TemporaryDirectory(prefix="harvest-") as base:
        Path(base).chmod(0o711)
        try:
            yield Trials(fork_server.ForkServer(ours), base)
        finally:
            ours.close()
            os.waitpid(pid, 0)
