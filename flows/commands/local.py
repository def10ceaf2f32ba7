"""`dojo deploy --local`: a server, a worker for each pool, and everything deployed, on this machine.

What dies is started again, until Ctrl-C ends all of it. For trying out and for one host; a service manager
does the same on several (deploy/README.md).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from flows.commands.deploy import deploy_file
from flows.presets import PREFECT_YAML
from flows.server import (
    NoServer,
    announce_ui,
    prefect_home,
    prepare_environment,
    require_free,
    stoppable,
    ui_server,
    wait_until_healthy,
)
from flows.terminal import say
from kernel_core.python_module import module_command
from kernel_core.runs.host_gpus import has_gpu

LOOK_EVERY_S = 1.0
STOP_TIMEOUT_S = 40.0
POOLS = {"cpu": (), "cuda": ("--limit", "1")}
"""Pools and how their workers are started: a GPU does one stage at a time."""


def pools() -> dict[str, tuple[str, ...]]:
    """The pools that this host can serve: `cuda` only where NVML finds a GPU."""
    if has_gpu():
        return POOLS
    say("no GPU on this host: no worker for the pool cuda; its runs wait for a worker on a GPU host")
    return {pool: options for pool, options in POOLS.items() if pool != "cuda"}


class Service:
    """A process that is started again when it dies."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self.log = prefect_home() / f"dojo-{name}.log"
        self._command, self._environment, self._folder = list(command), environment, folder
        self.process = self._start()

    def keep(self) -> None:
        """Start it again if it ended."""
        if (code := self.process.poll()) is not None:
            say(f"{self.name} ended with exit code {code}; starting it again ({self.log})")
            self.process = self._start()

    def stop(self) -> None:
        """End it, gently first."""
        self.process.terminate()
        try:
            self.process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=stoppable,
            )


def serve_local(port: int, file: Path | None) -> int:
    """Start everything, deploy, and keep it running until interrupted."""
    require_free(port)
    prepare_environment()
    url, command, settings = ui_server(port)
    folder, environment = (file or PREFECT_YAML).resolve().parent, os.environ | settings
    with contextlib.ExitStack() as stack:

        def start(name: str, command: Sequence[str]) -> Service:
            service = Service(name, command, environment, folder)
            stack.callback(service.stop)
            return service

        server = start("ui", command)
        if not wait_until_healthy(server.process, url):
            raise NoServer(f"the Prefect server did not start on port {port}; see {server.log}")
        deploy_file(file, dry_run=False, api_url=url)
        worker = module_command("prefect", "worker", "start", "--pool")
        workers = [start(f"worker-{pool}", [*worker, pool, *options]) for pool, options in pools().items()]
        announce_ui(url)
        while True:
            time.sleep(LOOK_EVERY_S)
            for service in (server, *workers):
                service.keep()
