"""The gate: a checkpoint takes a name only if it is clearly better than the one that has it.

The checkpoints of a name's run are copies of those that passed: `checkpoint=promoted` is the last of them.
The run also has the index of the training that the last one is from: it is asked with the same exemplars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_core.config import PolicyConfig
from kernel_core.evaluation.comparison import Comparison
from kernel_core.evaluation.nightly import regressions, watched_figures
from kernel_core.records import Record
from kernel_core.runs.resolve import CHECKPOINTS
from kernel_core.runs.run_folder import Run, stamp
from kernel_core.store import Store


class Decision(Record):
    """The gate's decision on a candidate, with the reason."""

    passes: bool
    reason: str


def decide(change: Comparison) -> Decision:
    """Pass a candidate if a watched figure is clearly better than before and none is clearly worse.

    Clear means a p-value below 5 %, two-sided: each of two figures gains by chance one time in forty. So a
    candidate passes at most once in twenty times.
    """
    if worse := regressions(change):
        return Decision(passes=False, reason=f"clearly worse: {'; '.join(worse)}")
    figures = watched_figures(change)
    better = [
        figure for figure in figures if figure.clear and figure.change is not None and figure.change.value > 0
    ]
    words = "clearly better" if better else "not clearly better"
    details = "; ".join(figure.in_a_sentence() for figure in better or figures)
    return Decision(passes=bool(better), reason=f"{words}: {details}")


def promoted_policy(name: Run) -> PolicyConfig | None:
    """Settings of the policy that was promoted last; None before the first."""
    lines = list(name.store.lines(CHECKPOINTS))
    return PolicyConfig.model_validate(lines[-1]["policy"]) if lines else None


def trained_policy(run: Run) -> PolicyConfig | None:
    """Settings of the policy in a run's training; None for a run without a record of one."""
    record = run.stage("train")
    return PolicyConfig.model_validate(record.config["policy"]) if record is not None else None


def promote_checkpoint(name: Run, checkpoint: str, policy: PolicyConfig, about: Mapping[str, Any]) -> str:
    """Copy a sealed checkpoint, and the index of its run, into the run of a name; gives the new folder.

    The copy has no optimiser: it is there to be asked. It is listed last: after a kill the name is as before.
    """
    source, number = Store(checkpoint), len(list(name.store.lines(CHECKPOINTS))) + 1
    folder = f"{CHECKPOINTS.removesuffix('.jsonl')}/step-{number:06d}"
    source.copy_sealed(name.store.child(folder))
    index = Store(checkpoint.rpartition("/checkpoints/")[0]).child("index")
    name.store.child("index").remove()
    if index.sealed():
        index.copy_sealed(name.store.child("index"))
    line = {"step": number, "folder": folder, "at": stamp(), "policy": policy.model_dump(mode="json")}
    name.store.append_line(CHECKPOINTS, {**line, **about})
    return name.store.path(folder)
