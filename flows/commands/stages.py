"""`dojo pipeline|ingest|…`: one stage's flow in this process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.logging import RichHandler

from flows.server import prepare_environment, require_access, send_queued, standing_server, starting_server
from flows.terminal import say, working
from kernel_core.config.base import laid_over
from kernel_core.runs.host_gpus import NoGpu
from kernel_core.runs.run_folder import Run


def run_stage(stage: str, words: Sequence[str], file: Path | None, *, dry_run: bool = False) -> int:
    """Run a stage with its settings, then show what came of it; with `dry_run` only print the settings."""
    from flows.presets import preset_and_settings

    preset_name, assignments = preset_and_settings(words)
    if (stage, preset_name) == ("ingest", "verify"):  # a stage of its own, which reads what ingest made
        stage, preset_name = "verify", None

    def parameters() -> dict[str, Any]:
        from flows.presets import build_parameters, chosen_settings, load_flow, preset
        from flows.run_names import in_own_run, names_a_run

        chosen = chosen_settings(stage, file, assignments, os.environ)
        built = build_parameters(stage, laid_over(preset(stage, preset_name), chosen))
        return built if names_a_run(stage, chosen) else in_own_run(load_flow(stage), built)

    if dry_run:
        return _show_settings(stage, parameters)
    return _run_flow(stage, parameters)


def _show_settings(stage: str, make_parameters: Callable[[], dict[str, Any]]) -> int:
    _prepare()
    parameters = make_parameters()
    from flows.preflight import check_before_start
    from flows.running import as_json
    from kernel_core.runs.forecast import plan_of

    for line in plan_of(parameters["config"]):
        say(f"# {line}")
    try:
        check_before_start(stage, parameters)
    except NoGpu as error:  # what would be done is said all the same
        say(f"# {error}")
        check_before_start(stage, parameters, elsewhere=True)
    say(yaml.safe_dump(as_json(parameters), sort_keys=False, default_flow_style=False), end="")
    return 0


def stage_help(stage: str) -> str:
    """The presets of a stage and its settings, as lines."""
    from flows.presets import PREFECT_YAML, config_class_of, entrypoint_of
    from kernel_core.config.reference import settings_of
    from kernel_core.config.yaml_lines import load_yaml

    lines = ["presets (the first is used without a name):"]
    for entry in load_yaml(PREFECT_YAML)["deployments"]:
        if entry["entrypoint"] == entrypoint_of(stage):
            lines.append(f"  {entry['name']:<18} {entry['description']}")
    lines.append("settings (key=value; all pages: docs/settings.md):")
    for one in settings_of(config_class_of(stage)):
        lines.append(f"  {one.key} = {one.default}   {one.meaning}")
    return "\n".join(lines) + "\n"


def resume(stage: str, recorded: Mapping[str, Any]) -> int:
    """Run a recorded command again."""
    from flows.presets import build_parameters

    return _run_flow(stage, lambda: build_parameters(stage, recorded))


def judge_again(run: Run, folder: str, settings: Sequence[str]) -> int:
    """Judge the answers in a folder of a run again, under settings given as key=value."""

    def parameters() -> dict[str, Any]:
        from flows.presets import build_parameters, chosen_settings
        from kernel_core.runs.judging_again import parameters_to_judge_again

        chosen = chosen_settings("evaluate", None, list(settings), {})
        return build_parameters("evaluate", parameters_to_judge_again(run, folder, chosen))

    return _run_flow("evaluate", parameters)


def _run_flow(stage: str, make_parameters: Callable[[], dict[str, Any]]) -> int:
    """Call a flow against the API that is there or one of our own; then print its results.

    What the flow needs is imported while a server of our own starts.
    """
    _prepare()
    console = Console(stderr=True)
    lines = RichHandler(console=console, show_path=False, show_level=False, log_time_format="%H:%M:%S")
    with contextlib.ExitStack() as stack:
        with working(f"{stage}: checking settings, starting a Prefect server for this run"):
            wait_for_api = stack.enter_context(api())
            parameters = make_parameters()
            from flows.preflight import check_before_start
            from flows.presets import load_flow
            from flows.results import show_results
            from flows.running import logging_to
            from tasks.progress import terminal_bars

            check_before_start(stage, parameters)
            flow = load_flow(stage)
            wait_for_api()
        with terminal_bars(console), logging_to(lines):
            state = flow(**parameters, return_state=True)
            state.result()
    show_results(stage, parameters, str(state.state_details.flow_run_id), Console())
    return 0


@contextlib.contextmanager
def api() -> Iterator[Callable[[], None]]:
    """A live Prefect API, or one that starts; flows talk to it after the call of what this gives."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with contextlib.ExitStack() as stack:
        standing = standing_server()
        if standing is not None:
            require_access(standing)
        wait_for_url = stack.enter_context(starting_server()) if standing is None else lambda: standing

        def wait() -> None:
            # Heartbeats round synchronous flows up to whole seconds; our state file says which process lives.
            settings = {PREFECT_API_URL: wait_for_url(), PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
            stack.enter_context(temporary_settings(updates=settings))
            stack.callback(send_queued)

        yield wait


def _prepare() -> None:
    prepare_environment()
    # The terminal has our own log and one line for an error; Prefect's log is in its UI.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
