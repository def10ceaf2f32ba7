"""The table of a comparison, made of the scorecards of its arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_core.config import Arm
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.faults import retried_task


@retried_task("compare arms", "report")
def compare_arms(runs: Mapping[Arm, Run], folders: Sequence[str], store: Store) -> None:
    """Write the answers of all arms and the tables of their figures into a sealed folder."""
    from kernel_core.evaluation.judged_rows import write_comparison
    from kernel_core.evaluation.scorecard import load_scorecard

    cards = {arm: [load_scorecard(run.store.child(name)) for name in folders] for arm, run in runs.items()}
    write_comparison(cards, store)
