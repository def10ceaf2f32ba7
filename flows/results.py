"""What a flow leaves on the terminal when it is done: figures, winners, files, and where to see more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from flows.pipeline import AFTER, BEFORE, WINNERS
from kernel_core.runs import Run
from kernel_core.scorecard import compare, headline_rows, load_scorecard
from kernel_core.selection import load_selection


def show_results(stage: str, parameters: Mapping[str, Any], console: Console) -> None:
    """Print what a finished flow made."""
    where = parameters["config"] if stage == "pipeline" else None
    name = where.run if where is not None else parameters.get("run", stage)
    root = where.root if where is not None else parameters.get("root", "runs")
    run = Run(root, name)
    for part in _parts(stage, run, parameters):
        console.print(part)
    console.print(f"Files: {run.store.path()}/  ({', '.join(run.store.names())})", soft_wrap=True)
    console.print(
        f"Again: `dojo runs show {name}`. All flow runs, tables and logs: `dojo ui`, then "
        "http://127.0.0.1:4200 (the run is kept in Prefect's database).",
        soft_wrap=True,
    )


def _parts(stage: str, run: Run, parameters: Mapping[str, Any]) -> Iterator[RenderableType]:
    if stage == "pipeline":
        yield before_and_after(run, run, BEFORE, AFTER)
        yield curriculum(run)
        yield winners(run, WINNERS)
    elif stage == "train":
        yield curriculum(run)
    elif stage == "evaluate":
        card = load_scorecard(run.store.child(parameters.get("name", "evaluate")))
        yield rows_table(f"scorecard of {card.conditions.policy_version}", headline_rows(card))
    elif stage == "best-of-n":
        yield winners(run, parameters.get("name", "best-of-n"))
    elif stage == "ingest":
        report = run.store.child("snapshot").read_json("report.json")
        yield rows_table(
            "snapshot", [{"what": k, "value": v} for k, v in report.items() if not isinstance(v, list)]
        )


def before_and_after(first: Run, second: Run, before: str, after: str) -> Table:
    """Two scorecards side by side, with the interval of the change."""
    change = compare(load_scorecard(first.store.child(before)), load_scorecard(second.store.child(after)))
    title = f"held-out problems, before and after: {len(change.gained)} gained, {len(change.lost)} lost"
    return rows_table(title, [row for row in change.rows() if row["turn"] == "last"])


def curriculum(run: Run) -> Table:
    """The stages that training went through, in order, and the steps each took."""
    table = Table("curriculum stage", "from step", "to step", "reward", title="training")
    spans: list[list[Any]] = []
    for line in run.store.lines("metrics.jsonl"):
        stage, step, reward = line.get("stage", ""), line.get("step", 0), line.get("reward/mean")
        if not spans or spans[-1][0] != stage:
            spans.append([stage, step, step, reward])
        spans[-1][2:] = [step, reward]
    for stage, start, end, reward in spans:
        table.add_row(str(stage), str(start), str(end), "" if reward is None else f"{reward:.3f}")
    return table


def winners(run: Run, folder: str) -> Table:
    """Each problem's verified winner, or why it has none."""
    selection = load_selection(run.store.child(folder))
    title = (
        f"best of {selection.n}: {len(selection.winners)} of {len(selection.problems)} problems have a winner"
    )
    return rows_table(title, selection.rows())


def comparison_of(first: Run, second: Run) -> Iterator[RenderableType]:
    """The scorecards that two runs both have, side by side."""
    for name in sorted(set(first.store.names()) & set(second.store.names())):
        if name.startswith("evaluate") and all(run.store.child(name).sealed() for run in (first, second)):
            yield before_and_after(first, second, name, name)


def rows_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of names and values as a terminal table."""
    names = list(rows[0]) if rows else []
    table = Table(*map(escape, names), title=title)
    for row in rows:
        table.add_row(*(escape(_text(row.get(name))) for name in names))
    return table


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
