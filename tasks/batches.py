"""Batches of problems as task runs: each has a name, a duration, and a state that says what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task, unmapped
from prefect.futures import wait
from prefect.states import Completed, State

from kernel_core.batches import Batch, Work

AT_ONCE = 8
"""Threads of a stage's task runner. They wait for judges, of which the pool of judges decides."""


@task(name="batch", task_run_name="{name}", tags=["problems"])
def work_on(name: str, batch: Batch, work: Work) -> State:
    """One batch. A fault ends the task around it; the next try of that task has the batches that are left."""
    return Completed(message=work(batch))


def each_batch(batches: Sequence[Batch], work: Work, *, at_once: bool) -> None:
    """Every batch as a task run: mapped over the flow's task runner where several may be worked on at once,
    else in this thread, where Ctrl-C stops a policy while it writes."""
    names = [batch.name for batch in batches]
    if not at_once:
        for name, batch in zip(names, batches, strict=True):
            work_on(name, batch, work)
        return
    futures = work_on.map(names, batches, unmapped(work))
    wait(futures)
    for future in futures:
        if not future.state.is_completed():
            future.result()
