"""State of a run and its newest figures on a terminal, from its folder alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from kernel_core.errors import Corrupt
from kernel_core.runs.run_folder import Run, state_of

SHOWN_METRICS = ("step", "stage", "reward/mean", "kernel/", "probe/", "seconds/")
"""Beginnings of the metrics worth a line in an overview; all of them are in `metrics.jsonl`."""
_COLOURS = {"running": "cyan", "finished": "green", "failed": "red", "dead": "red", "stopped": "yellow"}


def overview(run: Run) -> RenderableType:
    """State, stages and newest figures of a run."""
    state = state_of(run)
    head = f"run {run.name}: {state.flow}, {coloured(state.condition)}"
    if state.condition == "running":
        head += f" (process {state.pid} on {state.host}, since {state.started_at[:19]})"
    elif state.message:
        head += f": {state.message}"
    stages = [
        {"stage": stage.stage, "status": stage.status, "seconds": stage.seconds, "output": stage.output[:12]}
        for stage in run.stages()
    ]
    newest = {key: value for key, value in newest_metrics(run).items() if key.startswith(SHOWN_METRICS)}
    metrics = [{"metric": key, "newest": value} for key, value in newest.items()]
    return Group(head, rows_table("", stages), *([rows_table("training", metrics)] if metrics else []))


def runs_table(runs: Iterable[Run]) -> Table:
    """Return a table with a row per run: flow, condition, stage at work, newest step and message."""
    name = Column("run", no_wrap=True)  # it is what the next command is given
    table = Table(name, "flow", "condition", "at", "step", "last seen", "message")
    for run in runs:
        try:
            state = state_of(run)
        except Corrupt as error:
            table.add_row(run.name, "", "[red]unreadable[/]", "", "", "", str(error)[:80])
            continue
        table.add_row(
            run.name,
            state.flow,
            coloured(state.condition),
            run.stage_at_work() if state.condition != "finished" else "",
            str(newest_metrics(run).get("step", "")),
            state.seen_at[:19].replace("T", " "),
            state.message[:80],
        )
    return table


def rows_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of names and values as a table."""
    names = list(rows[0]) if rows else []
    table = Table(*map(escape, names), title=title or None)
    for row in rows:
        table.add_row(*(escape(_text(row.get(name))) for name in names))
    return table


def coloured(condition: str) -> str:
    """Return a condition as rich's markup."""
    return f"[{_COLOURS[condition]}]{condition}[/]"


def newest_metrics(run: Run) -> dict[str, Any]:
    """Return the last line of `metrics.jsonl`; empty without one."""
    newest: dict[str, Any] = {}
    for line in run.store.lines("metrics.jsonl"):
        newest = line
    return newest


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
