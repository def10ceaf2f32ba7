"""Prefect API of the flows: the configured one, that of `dojo ui`, or a server of this process.

Prefect's own ephemeral server shares the terminal's process group: Ctrl-C kills it before the flow can report
its end. It outlives a killed parent, and migrates its database without a lock (two at once: "database is
locked"). Ours has a process group, dies with its parent, starts under a lock, and is started again if its
start fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from flows.terminal import say
from kernel_core.errors import ConfigError, DojoError
from kernel_core.python_module import module_command
from kernel_core.runs.run_folder import process_identity

START_TIMEOUT_S = 120.0
START_ATTEMPTS = 3
DRAIN_S = 10
"""Seconds for queued logs and events to be sent."""
_TIMEOUTS_S = (10.0, 20.0, 30.0)
"""Timeouts of three requests, one after another."""
SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "60",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "kernel_core,tasks,flows",
    "PREFECT_TASKS_DEFAULT_NO_CACHE": "true",
    "PREFECT_CLIENT_MAX_RETRIES": "7",
    # The status of the server while its database is away.
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
}
"""Environment of each process before it imports Prefect; variables that are set already stay."""


class NoServer(DojoError):
    """No Prefect server could be reached or started."""


def prepare_environment() -> None:
    """Set what Prefect reads once, at import."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    prefect_home().mkdir(parents=True, exist_ok=True)


def prefect_home() -> Path:
    """Return the folder of Prefect's database."""
    return Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()


def standing_server() -> str | None:
    """Return the API that the environment or profile names, else that of a live `dojo ui`, else None."""
    import prefect.settings

    configured = prefect.settings.PREFECT_API_URL.value()
    if configured:
        return str(configured)
    notice = prefect_home() / "dojo-ui.json"
    if not notice.exists():
        return None
    known = json.loads(notice.read_text())
    alive = process_identity(known["pid"]) == known["process"]
    if not alive:
        return None
    with _client() as client:
        return str(known["api_url"]) if _healthy(client, known["api_url"]) else None


def require_access(url: str) -> None:
    """Raise `ConfigError` if the server wants a password that is not set, `NoServer` if it is away."""
    import prefect.settings

    words = prefect.settings.get_current_settings().api.auth_string
    login = tuple(words.get_secret_value().split(":", 1)) if words is not None else None
    try:
        answer = _asked(f"{url}/admin/version", login)
    except httpx.TransportError as error:
        raise NoServer(
            f"the Prefect server at {url} cannot be reached ({error}): start it, or unset PREFECT_API_URL"
        ) from error
    if answer.status_code == 401:
        raise ConfigError(
            f"the Prefect server at {url} wants another password: set PREFECT_API_AUTH_STRING=USER:PASSWORD"
        )


def _asked(url: str, login: Any) -> httpx.Response:
    """Return the answer of a server that may be busy for a moment."""
    for timeout_s in _TIMEOUTS_S[:-1]:
        with contextlib.suppress(httpx.TimeoutException):
            return httpx.get(url, auth=login, timeout=timeout_s, trust_env=False)
    return httpx.get(url, auth=login, timeout=_TIMEOUTS_S[-1], trust_env=False)


def send_queued() -> None:
    """Send queued logs and events while the server is there; without one, an exit retries for minutes."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=DRAIN_S)
    EventsWorker.drain_all(timeout=DRAIN_S)


@contextlib.contextmanager
def starting_server() -> Iterator[Callable[[], str]]:
    """Run a server while the block lasts; yield a function that waits for its API's URL.

    That function raises `NoServer`. `send_queued` belongs at the end of a block in which flows ran.
    """
    # Its thread has to live on: the server dies with the thread that started it.
    with ThreadPoolExecutor(1) as starter:
        unwanted = threading.Event()
        started = starter.submit(_start_under_lock, unwanted)
        try:
            yield lambda: started.result()[1]
        finally:
            unwanted.set()
            with contextlib.suppress(NoServer):
                _stop(started.result()[0])


def _start_under_lock(unwanted: threading.Event) -> tuple[subprocess.Popen[bytes], str]:
    log = prefect_home() / "dojo-server.log"
    with log.with_name("dojo-start.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        for attempt in range(START_ATTEMPTS):
            process, url = _start(log)
            if wait_until_healthy(process, url, unwanted):
                return process, url
            _stop(process)
            if unwanted.wait(2.0 * attempt):
                break
    raise NoServer(f"the Prefect server did not start in {START_ATTEMPTS} tries; see {log}")


def ui_server(port: int) -> tuple[str, list[str], dict[str, str]]:
    """Return API URL, command and environment of a server with its UI on a port of this machine."""
    url = f"http://127.0.0.1:{port}/api"
    command = module_command("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port))
    # The UI asks the server where its API is; with another port than 4200 it must be told.
    return url, command, {"PREFECT_API_URL": url, "PREFECT_UI_API_URL": url}


def require_free(port: int) -> None:
    """Raise `ConfigError` if no server can listen on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: the last one may be gone
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be listened on: {error.strerror}; name another with --port"
            ) from error


def announce_ui(api_url: str) -> None:
    """Print where the UI is and how `prefect` finds its server, and leave a notice for other `dojo` commands.

    Without that setting a `prefect` command in another shell starts a second server on the same database.
    """
    say(f"Prefect UI: {api_url.removesuffix('/api')}   (logs in {prefect_home()}; Ctrl-C ends it)")
    say(f"for `prefect` in another shell: prefect config set PREFECT_API_URL={api_url}")
    pid = os.getpid()
    notice = {"api_url": api_url, "pid": pid, "process": process_identity(pid)}
    (prefect_home() / "dojo-ui.json").write_text(json.dumps(notice))


def _start(log: Path) -> tuple[subprocess.Popen[bytes], str]:
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    environment = os.environ | {
        # The terminal shows no warnings of Prefect, so the server's log must.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
        "PREFECT_UI_ENABLED": "0",
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
        # Prefect drops a batch of events that five writes in a row found no unlocked database for.
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_MAX_FLUSH_RETRIES": "1000",
        "PREFECT_API_URL": url,
    }
    command = module_command("uvicorn", "--factory", f"{__package__}.server_app:create_app")
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--lifespan", "on"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    return process, url


def wait_until_healthy(
    process: subprocess.Popen[bytes], url: str, unwanted: threading.Event | None = None
) -> bool:
    """Return True once the server answers; False if it ended, took too long or is unwanted."""
    give_up = unwanted or threading.Event()
    deadline = time.monotonic() + START_TIMEOUT_S
    with _client() as client:  # reading certificates is slow, so all requests share it
        while time.monotonic() < deadline and process.poll() is None:
            if _healthy(client, url):
                return True
            if give_up.wait(0.1):
                break
    return False


def _client() -> httpx.Client:
    return httpx.Client(timeout=2.0, trust_env=False)


def _healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").status_code == 200
    except httpx.HTTPError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def stoppable() -> None:
    """Do `die_with_parent`, and restore Ctrl-C (`preexec_fn`).

    A job that a shell starts in the background ignores SIGINT, and so would its children: such a worker never
    stops.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()


def die_with_parent() -> None:
    """Have the kernel send SIGTERM to the child when this process dies (`preexec_fn`)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
