"""Call a stage here, or start it as a deployment on a worker that has what it needs.

`inline` calls its flow as a subflow, `deployed` starts its deployment and waits. A child's
idempotency key is the digest of all that decides its result, and the number of the attempt. So a restarted
parent adopts the child that still runs, and nothing is computed twice. Prefect gives back the same child for
a key for ever, even a failed one: another attempt is another key.

A parent that is stopped or cancelled cancels its child at once. One that dies cannot; its child notices
(see `lease`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import httpx

from flows.presets import PREFECT_YAML, entrypoint_of
from flows.run_names import as_json
from flows.stage_flow import REFUSED
from kernel_core.config.yaml_lines import load_yaml
from kernel_core.errors import ConfigError, OurFault
from kernel_core.runs.stage_record import canonical, code_version, sealed_digest
from kernel_core.store import Store, digest_of

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas import FlowRun

T = TypeVar("T")
log = logging.getLogger(__name__)

Mode = Literal["inline", "deployed"]
ATTEMPTS = 3
POLL_S = 5.0
API_PATIENCE_S = 900.0
"""Seconds that the Prefect API may be away before a waiting parent gives up."""


class ChildFailed(OurFault):
    """A deployed stage failed more often than it may, or was cancelled."""


class Stage(NamedTuple):
    """A stage's flow, the sealed folders that it reads, and its parameters."""

    flow: Any
    reads: Mapping[str, Store]
    parameters: Mapping[str, Any]


def route(stage_flow: Any, mode: Mode, reads: Mapping[str, Store] | None = None, **parameters: Any) -> None:
    """Run a stage to its end, here or on a worker; its output is in the run's folder afterwards.

    `reads` are the sealed folders that the stage reads. Raises what `route_all` raises.
    """
    route_all(mode, [Stage(stage_flow, reads or {}, parameters)])


def route_all(mode: Mode, stages: Sequence[Stage]) -> None:
    """Run stages that do not depend on each other: here one after another, or all at once on workers.

    Raises `ChildFailed` when a deployed child was cancelled or every attempt failed, and `ConfigError` when
    it met a mistake of the caller's, after all others have ended. An inline stage raises its own error.
    """
    if mode == "inline":
        for stage in stages:
            stage.flow(**stage.parameters)
        return
    children = []
    for stage in stages:
        sent = as_json(stage.parameters)
        name = child_of(stage.flow.name, "stage-cuda" if _needs_gpu(sent) else "stage-cpu")
        inputs = {name: sealed_digest(store) for name, store in stage.reads.items()}
        children.append(_Child(name, sent, stage_digest(stage.flow.name, sent, inputs)))
    _run_children(children)


def child_of(stage: str, tag: Literal["stage-cpu", "stage-cuda"]) -> str:
    """Return the deployment of a stage that has the tag, which a deployed pipeline starts."""
    for entry in load_yaml(PREFECT_YAML)["deployments"]:
        if entry["entrypoint"] == entrypoint_of(stage) and tag in entry.get("tags", ()):
            return f"{stage}/{entry['name']}"
    raise ConfigError(f"no deployment of {stage} in {PREFECT_YAML} has the tag {tag} of its settings")


def stage_digest(stage: str, parameters: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Digest of all that decides a stage's result: its name, settings and inputs, and the code."""
    return digest_of([stage, canonical(parameters), dict(inputs), code_version()])


class _Child:
    """A stage on a worker, and its attempts so far."""

    def __init__(self, name: str, parameters: dict[str, Any], digest: str) -> None:
        self.name, self._parameters, self._digest = name, parameters, digest
        self.attempt = self.failures = 0

    @property
    def key(self) -> str:
        """Return the idempotency key of this attempt."""
        return f"{self._digest}:{self.attempt}"

    def start(self) -> FlowRun:
        """Return the flow run of this attempt, made if there is none."""
        from prefect.deployments import run_deployment

        start = partial(run_deployment, self.name, parameters=self._parameters, timeout=0)
        return _patiently(partial(start, idempotency_key=self.key))

    def is_done(self, ended: FlowRun, began: Any) -> bool:
        """Return True for a completed flow run, False where another attempt is to begin; raise otherwise.

        Attempts that were made before this parent began are not counted.
        """
        state = ended.state
        assert state is not None, "a flow run that has ended has a state"
        if state.is_completed():
            return True
        if not (ended.created is not None and ended.created < began):
            if state.is_cancelled():
                raise ChildFailed(f"{self.name} ({ended.name}) was cancelled; start the flow again to go on")
            if state.name == REFUSED:
                raise ConfigError(f"{self.name} ({ended.name}): {state.message}")
            self.failures += 1
        log.warning("%s, attempt %d: %s", self.name, self.attempt, state.message)
        self.attempt += 1
        if self.failures < ATTEMPTS:
            return False
        raise ChildFailed(
            f"{self.name} failed {ATTEMPTS} times; see its runs in the Prefect UI, then start again"
        )


def _run_children(children: Sequence[_Child]) -> None:
    """Wait for all children, then raise the first failure. A signal to this process stops them too."""
    from prefect import runtime
    from prefect.client.orchestration import get_client
    from prefect.exceptions import TerminationSignal

    began, errors = runtime.flow_run.scheduled_start_time, []
    with get_client(sync_client=True) as client:
        waiting: dict[_Child, FlowRun | None] = dict.fromkeys(children)
        try:
            while waiting:
                for child, flow_run in list(waiting.items()):
                    if flow_run is None:
                        waiting[child] = child.start()
                        continue
                    flow_run = waiting[child] = _patiently(partial(client.read_flow_run, flow_run.id))
                    if flow_run.state is None or not flow_run.state.is_final():
                        continue
                    waiting[child] = None
                    try:
                        if child.is_done(flow_run, began):
                            del waiting[child]
                    except (ChildFailed, ConfigError) as error:
                        errors.append(error)
                        del waiting[child]
                if any(waiting.values()):
                    time.sleep(POLL_S)
        except (KeyboardInterrupt, TerminationSignal):
            for child in waiting:
                _cancel(client, child.key)
            raise
    if errors:
        raise errors[0]


def _cancel(client: SyncPrefectClient, key: str) -> None:
    """Cancel a child by its key: it may exist although the answer was lost."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Cancelling

    message = "The flow that waited for this was stopped. Starting that one again goes on."
    try:
        for child in client.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key={"any_": [key]})):
            if child.state is None or not child.state.is_final():
                client.set_flow_run_state(child.id, Cancelling(message=message))
                log.info("cancelled %s, because this flow is being stopped", child.name)
    except httpx.HTTPError as error:  # its lease ends it
        log.warning("could not cancel the child of this flow: %s", error)


def _patiently(ask: Callable[[], T]) -> T:
    """Return the answer of the Prefect API; ask again for `API_PATIENCE_S` while it is away."""
    began = time.monotonic()
    while True:
        try:
            return ask()
        except httpx.TransportError as error:
            if time.monotonic() - began > API_PATIENCE_S:
                raise
            log.warning("the Prefect API cannot be reached (%s); the work goes on, asking again", error)
            time.sleep(POLL_S)


def _needs_gpu(parameters: Any) -> bool:
    """Return True if any `device` in the settings, at any depth, is `cuda`."""
    if isinstance(parameters, Mapping):
        return parameters.get("device") == "cuda" or any(map(_needs_gpu, parameters.values()))
    return False
