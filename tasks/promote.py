"""The gate as a task: a decision with its reason, and the copy of what passed."""

from __future__ import annotations

import logging

from prefect.states import Completed, State

from kernel_core.config import PolicyConfig
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.artifacts import page, picture
from tasks.assets import published
from tasks.events import PROMOTED, tell
from tasks.faults import retried_task
from tasks.report import key_of

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
        tell(PROMOTED, name, checkpoint=made, **about)
    log.info("%s: %s", checkpoint, verdict)
    lead = [f"**{verdict}**", f"Candidate: `{checkpoint}`. The one to beat: `{before.root}`."]
    lead.append(picture("fast_p", after.read("fast_p.png")))
    page(
        key_of(name, "gate"),
        f"Gate of {name.name}",
        name.store,
        {"Before and after": change.rows()},
        lead=lead,
    )
    return Completed(message=verdict)
