"""What a flow leaves on the terminal when it is done: figures, winners, files, and where to see more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from flows.run_names import place_of
from flows.terminal import say
from kernel_core.report.terminal import made_by_stage
from kernel_core.runs.run_folder import Run

UI = "http://127.0.0.1:4200"
"""Where `dojo ui` serves by default."""


def show_results(stage: str, parameters: Mapping[str, Any], flow_run_id: str, console: Console) -> None:
    """Print what a finished flow made."""
    root, name = place_of(stage, parameters)
    run = Run(root, name)
    for part in made_by_stage(run, stage, parameters.get("name", stage)):
        console.print(part)
    say(f"Files: {run.store.path()}/  ({', '.join(run.store.names())})")
    say(f"Again: dojo runs show {name}{'' if root == 'runs' else f' --root {root}'}")
    say(f"In the Prefect UI, with stages, tables and logs: dojo ui, then {UI}/runs/flow-run/{flow_run_id}")
