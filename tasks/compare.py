"""The table of a comparison, made of the scorecards of its arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_core.config import Arm, CompareConfig
from kernel_core.report.conditions import conditions_of
from kernel_core.runs.naming import ARM_CARD, COMPARISON
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.artifacts import page, table
from tasks.faults import retried_task
from tasks.report import key_of


@retried_task("compare arms", "report")
def compare_arms(runs: Mapping[Arm, Run], folders: Sequence[str], store: Store) -> None:
    """Write the answers of all arms and the tables of their figures into a sealed folder."""
    from kernel_core.evaluation.judged_rows import write_comparison
    from kernel_core.evaluation.scorecard import load_scorecard

    cards = {arm: [load_scorecard(run.store.child(name)) for name in folders] for arm, run in runs.items()}
    write_comparison(cards, store)


@retried_task("report comparison", "report")
def report_comparison(run: Run, config: CompareConfig) -> None:
    """Publish the figures of each arm and their paired differences, as a page and as a table."""
    from kernel_core.evaluation.judged_rows import ANSWERS, DIFFERENCES, figure_tables, read_rows

    store, arm = run.store.child(COMPARISON), config.arms[0]
    tables = figure_tables(read_rows(store.path(ANSWERS)), config.methods[0])
    conditions = conditions_of(Run(run.root, f"{run.name}-{arm.name}"), ARM_CARD)
    title = f"{', '.join(config.methods)} with {len(config.seeds)} seeds"
    lead = [f"Conditions: {conditions}.", "Intervals are over problems, and over several seeds."]
    page(key_of(run, "comparison"), title, store, tables, lead=lead)
    table(key_of(run, "differences"), tables.get(DIFFERENCES, ()), f"{title}; {conditions}.")
