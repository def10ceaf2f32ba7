"""`dojo pipeline|ingest|…`: one stage's flow in this process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

from flows.server import own_server, prepare_environment, require_access, standing_server

DRAIN_S = 10


def run_stage(stage: str, preset_name: str | None, file: Path | None, assignments: list[str]) -> int:
    """Run a stage with its settings, then show what came of it."""
    _prepare()
    from flows.presets import build_parameters, settings_for

    settings = settings_for(stage, preset_name, file, assignments, os.environ)
    return run_flow(stage, build_parameters(stage, settings))


def resume(stage: str, parameters: Mapping[str, Any]) -> int:
    """Run a recorded command again."""
    _prepare()
    from flows.presets import build_parameters

    return run_flow(stage, build_parameters(stage, parameters))


def run_flow(stage: str, parameters: Mapping[str, Any]) -> int:
    """Call a flow against the API that is there or one of our own; then print its results."""
    from flows.presets import load_flow
    from flows.results import show_results
    from flows.running import logging_to
    from tasks.progress import terminal_bars

    console = Console(stderr=True)
    lines = RichHandler(console=console, show_path=False, show_level=False, log_time_format="%H:%M:%S")
    with api(console), terminal_bars(console), logging_to(lines):
        state = load_flow(stage)(**parameters, return_state=True)
        state.result()
    show_results(stage, parameters, str(state.state_details.flow_run_id), Console())
    return 0


@contextlib.contextmanager
def api(console: Console) -> Iterator[None]:
    """Flows inside the block talk to a live Prefect API."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    # Heartbeats round every synchronous flow up to whole seconds; our own state file says who lives.
    heartbeat_off = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    with contextlib.ExitStack() as stack:
        url = standing_server()
        if url is not None:
            require_access(url)
        else:
            with console.status("starting a Prefect server for this run"):
                url = stack.enter_context(own_server())
        stack.enter_context(temporary_settings(updates={PREFECT_API_URL: url, **heartbeat_off}))
        stack.callback(_send_what_is_queued)
        yield


def _send_what_is_queued() -> None:
    """Logs and events go out in the background; what is left must reach the server while it is there."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=DRAIN_S)
    EventsWorker.drain_all(timeout=DRAIN_S)


def _prepare() -> None:
    prepare_environment()
    # The terminal has our own log and one line for an error; Prefect's log is in its UI.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
