"""Stopping a run's process."""

from __future__ import annotations

import os
import signal
import socket
import time

from kernel_core.errors import ConfigError
from kernel_core.runs.run_folder import Run, process_identity, state_of

STOP_TIMEOUT_S = 60.0


def stop(run: Run) -> None:
    """Ask the process of a run on this host to stop, and wait until it has.

    Raises `NotFound` for a run that never began, `ConfigError` for one that does not run here, or that has
    not stopped after `STOP_TIMEOUT_S`.
    """
    state = state_of(run)
    if state.condition != "running":
        raise ConfigError(f"run {run.name!r} is not running: it is {state.condition}")
    if state.host != socket.gethostname():
        raise ConfigError(
            f"run {run.name!r} runs on {state.host}; stop it there, or cancel it in the Prefect UI"
        )
    os.kill(state.pid, signal.SIGINT)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while process_identity(state.pid) == state.process:
        if time.monotonic() > deadline:
            raise ConfigError(
                f"process {state.pid} has not stopped after {STOP_TIMEOUT_S:.0f} s; "
                f"`kill -9 {state.pid}` is safe: the same command goes on from what is done"
            )
        time.sleep(0.2)
