"""What a flow leaves on the terminal when it is done: figures, winners, files, and where to see more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from flows.pipeline import AFTER, BEFORE, WINNERS
from flows.run_names import place_of
from flows.terminal import say
from kernel_core.evaluation.best_of_n import load_selection
from kernel_core.evaluation.scorecard import Scorecard, compare, headline_rows, load_scorecard
from kernel_core.report.conditions import conditions_of, diagnosis_of
from kernel_core.reward.curriculum import stage_spans
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


def scorecard(run: Run, folder: str) -> Iterator[RenderableType]:
    """Headline figures with their conditions, and what became of the answers."""
    yield from headline(load_scorecard(run.store.child(folder)), conditions_of(run, folder))
    yield rows_table(f"{folder}: what became of the answers", diagnosis_of(run, folder).rows())


def headline(card: Scorecard, conditions: str) -> Iterator[RenderableType]:
    """Headline figures, the judges that were taken out meanwhile, and the problems that were left out."""
    yield rows_table(f"scorecard of {card.conditions.policy_version}: {conditions}", headline_rows(card))
    yield from (f"taken out: {escape(one)}" for one in card.conditions.taken_out)
    if left_out := card.conditions.left_out:
        yield f"{len(left_out)} problems pay for nothing and are left out: {escape(', '.join(left_out))}"


def made_by(run: Run) -> Iterator[RenderableType]:
    """The scorecards and winners that a run has."""
    for name in run.store.names():
        store = run.store.child(name)
        if store.sealed() and store.exists("scorecard.json"):
            yield from scorecard(run, name)
        elif store.sealed() and store.exists("winners/report.json"):
            yield winners(run, name)


def before_and_after(
    first: Run, second: Run, before: str, after: str, columns: tuple[str, str] = ("before", "after")
) -> Table:
    """Two scorecards side by side: figures of last turns, and the 95 % interval of each change."""
    change = compare(load_scorecard(first.store.child(before)), load_scorecard(second.store.child(after)))
    title = f"{after}: {len(change.gained)} problems gained, {len(change.lost)} lost"
    title += f"\n{conditions_of(second, after)}"
    rows = [one for one in change.rows(*columns) if one["turn"] == "last" and one[columns[0]] is not None]
    return rows_table(title, rows)


def curriculum(run: Run) -> Table:
    """The stages that training went through, in order, and the steps each took."""
    spans = stage_spans(run.store.lines("metrics.jsonl"))
    return rows_table("training, by stage of the curriculum", [span.model_dump() for span in spans])


def winners(run: Run, folder: str) -> Table:
    """Each problem's verified winner, or why it has none."""
    selection = load_selection(run.store.child(folder))
    title = (
        f"best of {selection.n}: winners for {len(selection.winners)} of {len(selection.problems)} problems"
    )
    title += f"\n{conditions_of(run, folder)}"
    problem = Column("problem", no_wrap=True)
    table = Table(problem, f"speed-up\n({selection.speed_kind})", "correct", "tried", "note", title=title)
    for selected in selection.problems:
        speedup = selected.winner.speedup if selected.winner is not None else None
        counts = (str(selected.num_distinct_correct), str(selected.num_candidates))
        name = selected.problem_id.rpartition("/")[2]
        table.add_row(escape(name), _text(speedup), *counts, escape(selected.why_none))
    return table


def comparison_of(first: Run, second: Run) -> Iterator[RenderableType]:
    """The scorecards that two runs both have, side by side."""
    for name in sorted(set(first.store.names()) & set(second.store.names())):
        if name.startswith("evaluate") and all(run.store.child(name).sealed() for run in (first, second)):
            yield before_and_after(first, second, name, name, columns=(first.name, second.name))


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
