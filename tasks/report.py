"""Reports of finished stages as tasks, which publish the pages and tables of `kernel_core.report.pages`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernel_core.config import Arm
from kernel_core.report import pages
from kernel_core.report.markdown import MAX_ROWS
from kernel_core.report.pages import Page, Rows, key_of
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.artifacts import link, show
from tasks.faults import retried_task

log = logging.getLogger(__name__)


def _report(stage: str, made: Callable[..., Iterator[Rows | Page]]) -> Any:
    """Return the task that publishes the pages of a stage."""

    @retried_task(f"report {stage}", "report")
    def report(run: Run, *about: Any) -> None:
        for shown in made(run, *about):
            show(shown)

    return report


report_corpus = _report("corpus", pages.corpus_pages)
report_index = _report("index", pages.index_pages)
report_scorecard = _report("scorecard", pages.scorecard_pages)
report_winners = _report("winners", pages.winners_pages)
report_pipeline = _report("pipeline", pages.pipeline_pages)
report_comparison = _report("comparison", pages.comparison_pages)


@retried_task("report training", "report")
def report_training(run: Run, *, has_more: bool) -> None:
    """Draw the page of curves again if the training has more to show than last time; publish one row a step.

    The table has the newest steps, if there are more than it may hold.
    """
    from kernel_core.report.run_page import REPORT, write_report

    if has_more or not run.store.exists(REPORT):
        write_report(run.store, is_trained=True)
    log.info("curves and answers: %s", run.store.path(REPORT))
    link(key_of(run, "report"), run.store, REPORT, f"Curves and answers of {run.name} as a page.")
    rows = list(run.store.lines("metrics.jsonl"))[-MAX_ROWS:]
    show(Rows(key_of(run, "metrics"), rows, f"All steps: {run.store.path('metrics.jsonl')}"))


@retried_task("report nights", "report")
def report_nights(run: Run, watched: str) -> tuple[str, ...]:
    """Publish the trend of a watched run's nights; return what regressed in the last one, in words."""
    from kernel_core.evaluation.nightly import write_trend

    worse = write_trend(run, watched)
    for shown in pages.night_pages(run, watched):
        show(shown)
    return worse


@retried_task("compare arms", "report")
def compare_arms(runs: Mapping[Arm, Run], folders: Sequence[str], store: Store) -> None:
    """Write the answers of all arms and the tables of their figures into a sealed folder."""
    from kernel_core.evaluation.judged_rows import write_comparison
    from kernel_core.evaluation.scorecard import load_scorecard

    cards = {arm: [load_scorecard(run.store.child(name)) for name in folders] for arm, run in runs.items()}
    write_comparison(cards, store)
