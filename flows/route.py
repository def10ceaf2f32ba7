"""Where a stage runs: called here, or started as a deployment whose worker has what it needs.

One body a flow: `inline` calls it as a subflow, `deployed` starts its deployment and waits. A child's
idempotency key is the digest of all that decides its result, and the number of the attempt, so that a
parent that was restarted adopts the child that still runs and nothing is computed twice. Prefect gives
back the same child for a key for ever, even one that failed: another attempt is another key.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

from flows.running import as_json
from kernel_core.errors import OurFault
from kernel_core.stage_work import canonical, code_version
from kernel_core.store import digest_of

log = logging.getLogger(__name__)

Mode = Literal["inline", "deployed"]
ATTEMPTS = 3
POLL_S = 5.0


class ChildFailed(OurFault):
    """A deployed stage failed more often than it may, or was cancelled."""


def route(stage_flow: Any, mode: Mode, inputs: Mapping[str, str] | None = None, **parameters: Any) -> None:
    """Run a stage to its end, here or on a worker; its output is in the run's folder afterwards.

    `inputs` are digests of what the stage reads. Raises `ChildFailed` when a deployed child was
    cancelled or every attempt failed; an inline stage raises its own error.
    """
    if mode == "inline":
        stage_flow(**parameters)
        return
    sent = as_json(parameters)
    name = f"{stage_flow.name}/{'cuda' if _needs_gpu(sent) else 'cpu'}"
    digest = stage_digest(stage_flow.name, sent, inputs or {})
    _run_child(name, sent, digest)


def stage_digest(stage: str, parameters: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Of all that decides a stage's result: its name, settings and inputs, and the code."""
    return digest_of([stage, canonical(parameters), dict(inputs), code_version()])


def _run_child(name: str, parameters: dict[str, Any], digest: str) -> None:
    from prefect import runtime
    from prefect.deployments import run_deployment

    began = runtime.flow_run.scheduled_start_time
    attempt = failures = 0
    while failures < ATTEMPTS:
        key = f"{digest}:{attempt}"
        child = run_deployment(name, parameters=parameters, idempotency_key=key, poll_interval=POLL_S)
        state = child.state
        if state is not None and state.is_completed():
            return
        ended_before_us = child.created is not None and child.created < began
        if not ended_before_us:
            if state is not None and (state.is_cancelled() or state.is_cancelling()):
                raise ChildFailed(f"{name} ({child.name}) was cancelled; start the flow again to go on")
            failures += 1
        log.warning("%s, attempt %d: %s", name, attempt, state.message if state is not None else "no state")
        attempt += 1
    raise ChildFailed(f"{name} failed {ATTEMPTS} times; see its runs in the Prefect UI, then start again")


def _needs_gpu(parameters: Any) -> bool:
    """Whether any `device` anywhere in the settings is `cuda`."""
    if isinstance(parameters, Mapping):
        return parameters.get("device") == "cuda" or any(map(_needs_gpu, parameters.values()))
    return False
