"""Retries of tasks, for failures that may pass by themselves."""

from __future__ import annotations

from typing import Any

import httpx
from prefect import task

from kernel_core.errors import GymUnavailable, SourceUnavailable, StaleWeights, WorkersLost

RETRY_DELAYS_S = [5.0, 30.0, 60.0]


def may_pass(tried: Any, task_run: Any, state: Any) -> bool:
    """Return True if the gym, a source, the Prefect API or workers were away, or weights did not arrive.

    A caller's mistake, a full disk or a bug does not pass. Prefect asks this between a task's tries
    (`retry_condition_fn`).
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
