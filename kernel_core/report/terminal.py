"""Tables of a run for a terminal: figures with their conditions, winners, settings that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from kernel_core.evaluation.best_of_n import load_selection
from kernel_core.evaluation.judged_rows import ANSWERS, KIND, figure_tables, read_rows
from kernel_core.evaluation.kinds import baseline_rows, kind_rows
from kernel_core.evaluation.scorecard import Scorecard, compare, headline_rows, load_scorecard
from kernel_core.evaluation.tables import measured_in_words, work_rows
from kernel_core.report.conditions import conditions_of, diagnosis_of
from kernel_core.report.overview import newest_metrics, rows_table
from kernel_core.report.taught import taught_rows
from kernel_core.reward.curriculum import stage_spans
from kernel_core.runs.naming import AFTER, BEFORE, BEST_KERNELS, COMPARISON, WINNERS
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import flat


def made_by(run: Run) -> Iterator[RenderableType]:
    """Yield the scorecards and winners that a run has."""
    for name in run.store.names():
        store = run.store.child(name)
        if store.sealed() and store.exists("scorecard.json"):
            yield from scorecard(run, name)
        elif store.sealed() and store.exists("winners/report.json"):
            yield winners(run, name)
        elif store.sealed() and name == COMPARISON:
            yield from comparison(run)


def made_by_stage(run: Run, stage: str, folder: str) -> Iterator[RenderableType]:
    """Yield the tables of a finished stage; `folder` is that of a scorecard or of winners."""
    if stage == "pipeline":
        yield before_and_after(run, run, BEFORE, AFTER)
        if rows := taught_rows([run]):
            yield rows_table("policies that were taught", rows)
    if run.stage("train") is not None and stage in ("pipeline", "train"):
        yield curriculum(run)
        if run.store.child(BEST_KERNELS).sealed():
            yield winners(run, BEST_KERNELS)
    if stage == "pipeline":
        yield winners(run, WINNERS)
    elif stage == "evaluate":
        yield from scorecard(run, folder)
    elif stage == "best-of-n":
        yield winners(run, folder)
    elif stage == "compare":
        yield from comparison(run)
    elif stage == "optimize":
        whole = run.store.child(stage).read_json("whole.json")
        yield rows_table("kernels in place", whole["table"])
        yield rows_table("the whole module", run.store.child(stage).read_json("figures.json"))
    elif stage == "verify":
        verified = run.store.child("snapshot").open_sealed("snapshot").meta["verified"]
        yield rows_table("verified", [{"what": key, "value": value} for key, value in verified.items()])
    elif stage == "ingest":
        report = run.store.child("snapshot").read_json("report.json")
        rows = [{"what": k, "value": v} for k, v in report.items() if not isinstance(v, list)]
        yield rows_table("snapshot", rows)


def scorecard(run: Run, folder: str) -> Iterator[RenderableType]:
    """Headline figures with their conditions, and what became of the answers."""
    yield from headline(load_scorecard(run.store.child(folder)), conditions_of(run, folder))
    yield rows_table(f"{folder}: what became of the answers", diagnosis_of(run, folder).rows())


def headline(card: Scorecard, conditions: str) -> Iterator[RenderableType]:
    """Headline figures, the judges that were taken out meanwhile, and the problems that were left out."""
    title = f"scorecard of {card.conditions.policy_version}: {conditions}\n{measured_in_words(card)}"
    yield rows_table(title, headline_rows(card))
    yield rows_table("precision, tolerance and own work of last turns", work_rows(card))
    by_kind = {"KernelBench by kind": kind_rows, "KernelBench by baseline": baseline_rows}
    yield from (rows_table(name, rows) for name, make in by_kind.items() if (rows := make(card.problems)))
    yield from (f"taken out: {escape(description)}" for description in card.conditions.taken_out)
    if left_out := card.conditions.left_out:
        yield f"{len(left_out)} problems pay for nothing and are left out: {escape(', '.join(left_out))}"


def comparison(run: Run) -> Iterator[RenderableType]:
    """Yield the figures of each arm and their paired differences to the first method."""
    store = run.store.child(COMPARISON)
    first = store.open_sealed(KIND).meta["arms"][0].rpartition("-")[0]
    tables = figure_tables(read_rows(store.path(ANSWERS)), first)
    yield from (rows_table(title, rows) for title, rows in tables.items())


def before_and_after(
    first: Run, second: Run, before: str, after: str, columns: tuple[str, str] = ("before", "after")
) -> Table:
    """Compare two scorecards: figures of last turns, and the 95 % interval of each change."""
    change = compare(load_scorecard(first.store.child(before)), load_scorecard(second.store.child(after)))
    title = f"{after}: {len(change.gained)} problems gained, {len(change.lost)} lost"
    title += f"\n{conditions_of(second, after)}"
    rows = [row for row in change.rows(*columns) if row["turn"] == "last" and row[columns[0]] is not None]
    return rows_table(title, rows)


def curriculum(run: Run) -> Table:
    """Return the stages of training, in order, with the steps of each."""
    spans = stage_spans(run.store.lines("metrics.jsonl"))
    return rows_table("training, by stage of the curriculum", [span.model_dump() for span in spans])


def winners(run: Run, folder: str) -> Table:
    """Return each problem's verified winner, or the reason for none."""
    selection = load_selection(run.store.child(folder))
    count = f"winners for {len(selection.winners)} of {len(selection.problems)} problems"
    rows = [
        {
            "problem": selected.problem_id.rpartition("/")[2],
            f"speed-up\n({selection.speed_kind})": selected.winner and selected.winner.speedup,
            "correct": selected.num_distinct_correct,
            "tried": selected.num_candidates,
            "note": selected.why_none,
        }
        for selected in selection.problems
    ]
    table = rows_table(f"best of {selection.n}: {count}\n{conditions_of(run, folder)}", rows)
    if rows:
        table.columns[0].no_wrap = True
    return table


def comparison_of(first: Run, second: Run) -> Iterator[RenderableType]:
    """Compare two runs: settings that differ, newest figures, and the scorecards that both have."""
    names, settings = (
        (first.name, second.name),
        [flat(run.command()["parameters"]) for run in (first, second)],
    )
    differing = [row for row in _side_by_side("setting", names, settings) if row[names[0]] != row[names[1]]]
    yield rows_table("settings that differ", differing)
    metrics = [newest_metrics(run) for run in (first, second)]
    yield rows_table("newest figures", list(_side_by_side("metric", names, metrics)))
    for name in sorted(set(first.store.names()) & set(second.store.names())):
        if name.startswith("evaluate") and all(run.store.child(name).sealed() for run in (first, second)):
            yield before_and_after(first, second, name, name, columns=names)


def _side_by_side(
    what: str, names: tuple[str, str], values: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    first, second = values
    for key in sorted(first.keys() | second.keys()):
        yield {what: key, names[0]: first.get(key), names[1]: second.get(key)}
