"""What a person sees of a stage afterwards: tables and pages of its results, with links to the files."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from kernel_core.runs import Run
from kernel_core.stage_work import flat
from kernel_core.store import Store

log = logging.getLogger(__name__)

MAX_ROWS = 1000
"""A table lives in Prefect's database; the whole of it is a file."""


def finite(value: Any) -> Any:
    """The value, or None for a number that is not finite: one infinity makes the UI show raw text."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Publish rows as a table artifact: finite numbers, at most `MAX_ROWS` rows, shown to 4 digits."""
    shown = [
        {name: round(v, 4) if isinstance(v := finite(value), float) else v for name, value in row.items()}
        for row in rows[:MAX_ROWS]
    ]
    cut = f" The first {MAX_ROWS} of {len(rows)} rows." if len(rows) > MAX_ROWS else ""
    create_table_artifact(shown, key=key, description=description + cut)


def page(key: str, title: str, store: Store, sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Publish a markdown page: a table under each heading, and where the files are."""
    blocks = [f"# {title}"]
    for heading, rows in sections.items():
        blocks += [f"## {heading}", "\n".join(markdown_table(rows))]
    blocks.append(f"Files: `{store.path()}`")
    create_markdown_artifact("\n\n".join(blocks), key=key)


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as the lines of a markdown table."""
    if not rows:
        return ["(nothing)"]
    names = list(rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows[:MAX_ROWS]]
    return [_line(names), _line(["---"] * len(names)), *map(_line, cells)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


@task(name="report corpus", tags=["report"])
def report_corpus(store: Store) -> None:
    """Counts of what was kept and dropped, and why."""
    report = store.read_json("report.json")
    counts = {name: value for name, value in report.items() if not isinstance(value, list)}
    sections = {name: rows for name, rows in report.items() if isinstance(rows, list)}
    page("corpus-report", "Snapshot", store, {"counts": what_and_value(counts), **sections})


@task(name="report index", tags=["report"])
def report_index(store: Store) -> None:
    """The index's embedder and size."""
    meta = store.open_sealed("index", verify=False).meta
    rows = what_and_value(meta)
    table("index-report", rows, f"The index in {store.path()}.")


@task(name="report scorecard", tags=["report"])
def report_scorecard(name: str, store: Store) -> None:
    """The headline figures, and one row a problem."""
    from kernel_core.evaluation_tables import problem_rows
    from kernel_core.scorecard import headline_rows, load_scorecard

    card = load_scorecard(store)
    key, title = artifact_key(name), f"Scorecard of {card.conditions.policy_version}"
    table(f"{key}-problems", problem_rows(card), f"One row a problem; all turns: {store.path()}")
    page(f"{key}-summary", title, store, {"headline": headline_rows(card)})


@task(name="report winners", tags=["report"])
def report_winners(store: Store) -> None:
    """Each problem's winner, or why it has none."""
    from kernel_core.selection import load_selection

    selection = load_selection(store)
    table("winners", selection.rows(), f"Verified winners; kernels and evidence: {store.path('winners')}")


@task(name="report training", tags=["report"])
def report_training(run: Run) -> None:
    """The page of curves, and one row a step: the newest ones, if there are more than a table may hold."""
    from kernel_core.learn.run_report import write_report

    log.info("curves and answers: %s", run.store.path(write_report(run.store)))
    rows = list(run.store.lines("metrics.jsonl"))[-MAX_ROWS:]
    table("training-metrics", rows, f"All steps: {run.store.path('metrics.jsonl')}")


@task(name="report pipeline", tags=["report"])
def report_pipeline(run: Run, before: str, after: str, winners: str) -> None:
    """What training changed on held-out problems, and the winners."""
    from kernel_core.scorecard import compare, load_scorecard
    from kernel_core.selection import load_selection

    change = compare(load_scorecard(run.store.child(before)), load_scorecard(run.store.child(after)))
    selection = load_selection(run.store.child(winners))
    sections = {"Before and after, on held-out problems": change.rows(), "Winners": selection.rows()}
    page("pipeline-summary", f"Run {run.name}", run.store, sections)


@task(name="report nights", tags=["report"])
def report_nights(run: Run, watched: str) -> None:
    """Headline figures of every night of one watched run, oldest first, and what the last one changed."""
    from kernel_core.scorecard import compare, load_scorecard

    begun = [name for name in run.store.names() if name.startswith(f"{watched}--")]
    nights = [name for name in begun if run.store.child(name).sealed()]
    done = [run.store.child(name) for name in nights]
    cards = [load_scorecard(store) for store in done]
    rows = [
        {
            "night": name,
            "correct_rate": card.last.correct_rate.value,
            f"fast_1 ({card.headline})": card.last.headline.fast_1.value,
        }
        for name, card in zip(nights, cards, strict=True)
    ]
    key = artifact_key(f"nightly-{watched}")
    table(key, rows, f"Every night of {watched}; files: {run.store.path()}")
    if len(cards) > 1:
        change = compare(cards[-2], cards[-1])
        page(f"{key}-change", f"{nights[-2]} → {nights[-1]}", done[-1], {"change": change.rows()})


def what_and_value(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nested settings or counts as rows."""
    return [
        {"what": name, "value": value if isinstance(value, int | float) else str(value)}
        for name, value in flat(values).items()
    ]


def artifact_key(words: str) -> str:
    """Words as Prefect wants a key: lower case, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
