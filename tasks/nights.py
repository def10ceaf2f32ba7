"""What a night found, as a task: the trend, and whether it is clearly worse than the night before."""

from __future__ import annotations

from kernel_core.evaluation.nightly import TREND_SCHEMA, finished_nights, last_change, regressions, trend_rows
from kernel_core.evaluation.tables import parquet
from kernel_core.report.conditions import conditions_of
from kernel_core.report.markdown import artifact_key, picture, tables
from kernel_core.report.pages import Page, Rows
from kernel_core.runs.run_folder import Run
from tasks.artifacts import show
from tasks.faults import retried_task


@retried_task("report nights", "report")
def report_nights(run: Run, watched: str) -> tuple[str, ...]:
    """Table, plot and last change of one watched run's nights; gives what regressed, in words."""
    from kernel_core.evaluation.plots import trend_png

    nights = finished_nights(run, watched)
    rows, change = trend_rows(nights), last_change(nights)
    png = trend_png(rows)
    run.store.write(f"trends/{watched}.parquet", parquet(rows, TREND_SCHEMA))
    run.store.write(f"trends/{watched}.png", png)
    worse = regressions(change) if change is not None else ()
    key = artifact_key(f"nightly-{watched}")
    missed = sum(row["missed_before"] for row in rows)
    file = run.store.path(f"trends/{watched}.parquet")
    conditions = conditions_of(run, nights[-1].folder)
    about = f"{len(rows)} nights of {watched}, {missed} missed; last night: {conditions}; all figures: {file}"
    shown = [row | {"regressed": "; ".join(row["regressed"])} for row in rows[::-1]]
    show(Rows(key, shown, about))
    verdict = f"**Regressed:** {'; '.join(worse)}" if worse else "Not clearly worse than the night before."
    if change is None:
        verdict = "Nothing to compare with: the first night on these problems."
    title = f"{watched}, {nights[-1].name}"
    blocks = [f"# {title}", verdict, f"Conditions: {conditions}.", picture("trend", png)]
    blocks += tables({"Change since the night before": change.rows() if change is not None else []})
    show(Page(f"{key}-change", blocks, run.store.child(nights[-1].folder), f"{title}."))
    return worse
