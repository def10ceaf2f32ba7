"""A server, workers and all deployments for a benchmark: `dojo deploy --local` in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

REPOSITORY = Path(__file__).parents[1]
START_TIMEOUT_S = 240.0
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Stack:
    """A running server with its workers, and what a person could ask of it."""

    def __init__(
        self, folder: Path, environment: dict[str, str], process: subprocess.Popen[bytes], port: int
    ) -> None:
        self.folder, self.environment, self.process, self.port = folder, environment, process, port
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api", timeout=30, trust_env=False)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """An answer of the API, asked again while the server is away."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                answer = self.http.request(method, path, json=body or None)
                answer.raise_for_status()
                return answer.json() if answer.content else None
            except (httpx.TransportError, httpx.HTTPStatusError) as error:
                busy = not isinstance(error, httpx.HTTPStatusError) or error.response.status_code >= 500
                if not busy or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def deployment(self, name: str) -> dict[str, Any]:
        """A deployment by `flow/name`."""
        found: dict[str, Any] = self.ask("GET", f"/deployments/name/{name}")
        return found

    def start(self, name: str, parameters: dict[str, Any]) -> str:
        """Start a deployment as the UI does; gives the flow run's id."""
        deployment = self.deployment(name)
        state = {"type": "SCHEDULED"}
        path = f"/deployments/{deployment['id']}/create_flow_run"
        return str(self.ask("POST", path, parameters=parameters, state=state)["id"])

    def cancel(self, run_id: str) -> None:
        """Cancel a flow run as the UI does."""
        self.ask("POST", f"/flow_runs/{run_id}/set_state", state={"type": "CANCELLING"})

    def flow_run(self, run_id: str) -> dict[str, Any]:
        """A flow run as the API has it."""
        found: dict[str, Any] = self.ask("GET", f"/flow_runs/{run_id}")
        return found

    def wait(self, run_id: str, timeout_s: float) -> dict[str, Any]:
        """The flow run once it has ended; as it is when the time is over."""
        deadline = time.monotonic() + timeout_s
        while (run := self.flow_run(run_id))["state_type"] not in FINAL and time.monotonic() < deadline:
            time.sleep(0.5)
        return run

    def children(self, run_id: str) -> list[dict[str, Any]]:
        """Flow runs that a flow run started, oldest first."""
        runs = self.ask(
            "POST", "/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run_id]}}, limit=200
        )
        return sorted(runs, key=lambda run: run["created"])

    def last_words(self, run_id: str) -> str:
        """The last lines that a flow run logged."""
        logs = {"flow_run_id": {"any_": [run_id]}}
        lines = self.ask("POST", "/logs/filter", logs=logs, sort="TIMESTAMP_DESC", limit=20)
        return "\n".join(line["message"] for line in reversed(lines))

    def processes(self, *words: str) -> list[int]:
        """Processes below this stack whose command has all these words."""
        found = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if all(word in command for word in words):
                    found.append(pid)
        return found

    def process_of(self, run_id: str) -> int | None:
        """The process that works on a flow run."""
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if f"PREFECT__FLOW_RUN_ID={run_id}".encode() in variables:
                    return pid
        return None


def descendants(pid: int) -> list[int]:
    """Every process started by a process, however deep; parents before children."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, ahead = [], [pid]
    while ahead:
        here = ahead.pop(0)
        children = sorted(parents.get(here, []))
        found += children
        ahead += children
    return found


@contextlib.contextmanager
def stack(folder: Path, **environment: str) -> Iterator[Stack]:
    """Everything started and deployed; ended with all its processes when the block is left."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    settings = os.environ | {"PREFECT_HOME": str(folder / "prefect"), "PYTHONPATH": path}
    settings |= {"OMP_NUM_THREADS": "1"} | environment
    settings.pop("PREFECT_API_URL", None)
    log = folder / "local.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "deploy", "--local", "--port", str(port)],
            cwd=REPOSITORY,
            env=settings,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while "Prefect UI:" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the stack did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield Stack(folder, settings, process, port)
    finally:
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=90)
        for pid in [process.pid, *below]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def run_with_index(root: Path, name: str) -> Any:
    """A run that has a snapshot, an index and no checkpoint yet, as training begins with."""
    from kernel_core.config import IndexConfig, IngestConfig
    from kernel_core.corpus.snapshot import build_snapshot
    from kernel_core.retrieval.index import build_index
    from kernel_core.runs.run_folder import Run

    run = Run(str(root), name)
    snapshot, index = run.store.child("snapshot"), run.store.child("index")
    if not index.sealed():
        build_snapshot(IngestConfig(generator_rows=400), snapshot)
        build_index(IndexConfig(), snapshot, index)
        run.store.write_json("config.json", {"flow": "train", "parameters": {}})
    return run


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
