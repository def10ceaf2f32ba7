"""Which failures a task tries again: those that may pass by themselves, and nothing else."""

from __future__ import annotations

from typing import Any

import httpx
from prefect import task

from kernel_core.errors import GymUnavailable, SourceUnavailable, StaleWeights, WorkersLost

RETRY_DELAYS_S = [5.0, 30.0, 60.0]


def may_pass(tried: Any, task_run: Any, state: Any) -> bool:
    """Whether the gym, a source or the Prefect API was away, learners or a sampler were lost, or weights did
    not arrive, which are published and verified anew. A caller's mistake, a full disk or a bug does not pass.

    Prefect asks this between a task's tries (`retry_condition_fn`).
    """
    error = state.result(raise_on_failure=False)
    passing = GymUnavailable | SourceUnavailable | StaleWeights | WorkersLost | httpx.TransportError
    return isinstance(error, passing)


def retried_task(name: str, tag: str) -> Any:
    """Return the decorator of a task that is safe to run twice: the store knows what is done.

    Its runs have the task's name, without Prefect's random suffix: a stage has one of each.
    """
    return task(
        name=name,
        task_run_name=name,
        tags=[tag],
        retries=len(RETRY_DELAYS_S),
        retry_delay_seconds=RETRY_DELAYS_S,
        retry_jitter_factor=0.2,
        retry_condition_fn=may_pass,
    )
