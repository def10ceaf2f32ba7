"""The gate as a task: a decision with its reason, and the copy of what passed."""

from __future__ import annotations

import logging

from prefect.states import Completed, State

from kernel_core.config import PolicyConfig
from kernel_core.report.pages import gate_page
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.artifacts import show
from tasks.assets import published
from tasks.events import PROMOTED, emit
from tasks.faults import retried_task

log = logging.getLogger(__name__)


@retried_task("gate", "promote")
def pass_gate(name: Run, checkpoint: str, policy: PolicyConfig, before: Store, after: Store) -> State:
    """Promote the checkpoint if its scorecard is clearly better; the state and the page `gate` say why."""
    from kernel_core.evaluation.promotion import decide, promote_checkpoint
    from kernel_core.evaluation.scorecard import compare, load_scorecard

    change = compare(load_scorecard(before), load_scorecard(after))
    decision = decide(change)
    verdict = f"{'Promoted' if decision.passes else 'Not promoted'}: {decision.reason}."
    if decision.passes:
        about = {"source": checkpoint, "reason": decision.reason, "policy_version": change.after_version}
        made = promote_checkpoint(name, checkpoint, policy, about)
        published(name, "promoted", Store(made), {"checkpoint": Store(checkpoint), "scorecard": after})
        emit(PROMOTED, name, checkpoint=made, **about)
    log.info("%s: %s", checkpoint, verdict)
    show(gate_page(name, verdict, checkpoint, before, after, change.rows()))
    return Completed(message=verdict)
