"""What a flow leaves on the terminal when it is done: figures, winners, files, and where to see more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, RenderableType

from flows.pipeline import AFTER, BEFORE, WINNERS
from flows.run_names import place_of
from flows.terminal import say
from kernel_core.report.overview import rows_table
from kernel_core.report.terminal import before_and_after, curriculum, scorecard, winners
from kernel_core.runs.run_folder import Run

UI = "http://127.0.0.1:4200"
"""Where `dojo ui` serves by default."""


def show_results(stage: str, parameters: Mapping[str, Any], flow_run_id: str, console: Console) -> None:
    """Print what a finished flow made."""
    root, name = place_of(stage, parameters)
    run = Run(root, name)
    for part in _parts(stage, run, parameters):
        console.print(part)
    say(f"Files: {run.store.path()}/  ({', '.join(run.store.names())})")
    say(f"Again: dojo runs show {name}{'' if root == 'runs' else f' --root {root}'}")
    say(f"In the Prefect UI, with stages, tables and logs: dojo ui, then {UI}/runs/flow-run/{flow_run_id}")


def _parts(stage: str, run: Run, parameters: Mapping[str, Any]) -> Iterator[RenderableType]:
    if stage == "pipeline":
        yield before_and_after(run, run, BEFORE, AFTER)
        yield curriculum(run)
        yield winners(run, WINNERS)
    elif stage == "train":
        yield curriculum(run)
    elif stage == "evaluate":
        yield from scorecard(run, parameters.get("name", "evaluate"))
    elif stage == "best-of-n":
        yield winners(run, parameters.get("name", "best-of-n"))
    elif stage == "verify":
        found = run.store.child("snapshot").open_sealed("snapshot").meta["verified"]
        yield rows_table("verified", [{"what": k, "value": v} for k, v in found.items()])
    elif stage == "ingest":
        report = run.store.child("snapshot").read_json("report.json")
        yield rows_table(
            "snapshot", [{"what": k, "value": v} for k, v in report.items() if not isinstance(v, list)]
        )
