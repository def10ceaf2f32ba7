"""`dojo pipeline|ingest|…`: the flow of a stage in this process."""

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

UI = "http://127.0.0.1:4200"
"""Address of `dojo ui` by default."""


def run_stage(stage: str, words: Sequence[str], file: Path | None, *, dry_run: bool = False) -> int:
    """Run a stage and print its results; with `dry_run` only check and print its settings."""
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

    return _show_settings(stage, parameters) if dry_run else _run_flow(stage, parameters)


def _show_settings(stage: str, make_parameters: Callable[[], dict[str, Any]]) -> int:
    _prepare()
    parameters = make_parameters()
    from flows.preflight import check_before_start
    from flows.run_names import as_json
    from kernel_core.runs.forecast import plan_of

    for line in plan_of(parameters["config"]):
        say(f"# {line}")
    try:
        check_before_start(stage, parameters)
    except NoGpu as error:  # the plan is of use without the GPU
        say(f"# {error}")
        check_before_start(stage, parameters, elsewhere=True)
    say(yaml.safe_dump(as_json(parameters), sort_keys=False, default_flow_style=False), end="")
    return 0


def stage_help(stage: str) -> str:
    """Return the presets of a stage and its settings, as lines."""
    from flows.presets import PREFECT_YAML, config_class_of, entrypoint_of
    from kernel_core.config.reference import settings_of
    from kernel_core.config.yaml_lines import load_yaml

    lines = ["presets (the first is used without a name):"]
    for entry in load_yaml(PREFECT_YAML)["deployments"]:
        if entry["entrypoint"] == entrypoint_of(stage):
            lines.append(f"  {entry['name']:<18} {entry['description']}")
    lines.append("settings (key=value; all pages: docs/settings.md):")
    for setting in settings_of(config_class_of(stage)):
        lines.append(f"  {setting.key} = {setting.default}   {setting.meaning}")
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
    """Call a flow with the standing API or a server of this process, then print its results.

    The flow is imported while that server starts.
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


def show_results(stage: str, parameters: Mapping[str, Any], flow_run_id: str, console: Console) -> None:
    """Print figures, winners and files of a finished flow, and where to see more."""
    from flows.run_names import place_of
    from kernel_core.report.terminal import made_by_stage

    root, name = place_of(stage, parameters)
    run = Run(root, name)
    for part in made_by_stage(run, stage, parameters.get("name", stage)):
        console.print(part)
    say(f"Files: {run.store.path()}/  ({', '.join(run.store.names())})")
    say(f"Again: dojo runs show {name}{'' if root == 'runs' else f' --root {root}'}")
    say(f"In the Prefect UI, with stages, tables and logs: dojo ui, then {UI}/runs/flow-run/{flow_run_id}")


@contextlib.contextmanager
def api() -> Iterator[Callable[[], None]]:
    """Yield a function that waits for the standing API, or for one that starts, and points flows at it."""
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
    # The terminal has our own log and a line for an error; Prefect's log is in its UI.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
