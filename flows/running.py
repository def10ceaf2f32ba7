"""What every flow does around its stages: own the run's folder, keep its log."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.states import Crashed

from flows.lease import wanted
from flows.server import send_queued
from kernel_core.config import Config
from kernel_core.errors import OurFault
from kernel_core.report.pages import settings_rows
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.run_folder import Run
from tasks.artifacts import show
from tasks.progress import may_be_missed

log = logging.getLogger(__name__)

_RUNNING = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING])))
DIED = "Its process died. Another flow run has taken up its work."
LOGGERS = ("kernel_core", "tasks", "flows")
ADD = ("evaluate", "best-of-n", "verify")
"""Flows that add a folder to a run that another flow made; `dojo runs resume` goes on with that other one."""


@contextlib.contextmanager
def running(run: str, root: str, **settled: Any) -> Iterator[Run]:
    """The run's folder, owned and logged for as long as the flow runs, with judges kept open meanwhile.

    The run keeps the flow's name and parameters, and the values that the flow has `settled` for them.
    On a worker all heartbeats have left before the flow run ends: one that the server gets after the end
    would begin the automation for lost runs anew.
    """
    if run_by_a_worker():
        _check_on_this_worker()
    with _owning(Run(root, run), settled) as here:
        _show_settings(here, settled)
        try:
            yield here
        finally:
            if run_by_a_worker():
                send_queued()


def _check_on_this_worker() -> None:
    """Check suites, GPU, model and KERNELBENCH_ROOT of this worker, as the command line does."""
    from flows.preflight import check_before_start

    context = FlowRunContext.get()
    if context is not None and context.flow is not None:
        check_before_start(context.flow.name, context.parameters or {})


def _show_settings(here: Run, settled: Mapping[str, Any]) -> None:
    """Show what runs: as the first artifact, and for a worker's run in place of what its caller typed."""
    context, flow_run = FlowRunContext.get(), flow_run_id()
    if context is None or context.flow is None or flow_run is None:
        return
    effective = as_json({**(context.parameters or {}), **settled})
    with may_be_missed("settings"):
        flow = context.flow.name
        show(settings_rows(here, flow, str(effective.get("name") or flow), effective))
        if run_by_a_worker():
            with get_client(sync_client=True) as client:
                client.update_flow_run(flow_run, parameters=as_json(context.parameters or {}))


@contextlib.contextmanager
def _owning(here: Run, settled: Mapping[str, Any]) -> Iterator[Run]:
    """The run's folder as its owner, or as a stage of the flow that owns it.

    A flow that another flow started works in its parent's run and leaves owning it to the parent; if a
    worker runs it, only for as long as the parent is there.
    """
    if started_by_another_flow():
        if not run_by_a_worker():
            yield here
            return
        with wanted(here, flow_run_id()), logged(here):
            yield here
        return
    context = FlowRunContext.get()
    if context is None or context.flow is None:
        raise OurFault(f"run {here.name} was opened outside of a flow")
    flow, parameters = context.flow.name, {**(context.parameters or {}), **settled}
    before, flow_run = here.state(), str(flow_run_id() or "") or None
    with (
        wanted(None, flow_run_id() if run_by_a_worker() else None),
        here.owned(flow, as_json(parameters), flow_run, adds=flow in ADD),
        logged(here),
        judges_kept(),
    ):
        if before is not None and before.condition == "dead" and before.flow_run is not None:
            tell_the_end_of(before.flow_run, goes_on=flow_run)
        yield here


def tell_the_end_of(flow_run: str, *, goes_on: str | None) -> None:
    """Mark the flow run of a dead process as crashed, with the stages and task runs in it. Otherwise
    the UI would show them as running for ever. Deployed stages have processes of their own.

    `goes_on` is the flow run that took up the work: the same one, if it was retried.
    """
    dead = UUID(flow_run)
    stages = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[dead]))
    try:
        with get_client(sync_client=True) as client:
            inside = [one for one in client.read_flow_runs(flow_run_filter=stages) if not one.deployment_id]
            ended = [*inside, client.read_flow_run(dead)]
            for one in ended:
                if str(one.id) != goes_on and one.state is not None and one.state.is_running():
                    client.set_flow_run_state(one.id, Crashed(message=DIED))
            of_them = FlowRunFilter(id=FlowRunFilterId(any_=[one.id for one in ended]))
            for work in client.read_task_runs(flow_run_filter=of_them, task_run_filter=_RUNNING):
                client.set_task_run_state(work.id, Crashed(message=DIED), force=True)
    except (httpx.HTTPError, PrefectException) as error:  # another server's, or deleted
        log.warning("could not mark flow run %s of a dead process as crashed: %s", flow_run, error)


def flow_run_id() -> UUID | None:
    """Return the id of this flow run; None outside of one."""
    context = FlowRunContext.get()
    return context.flow_run.id if context is not None and context.flow_run is not None else None


def started_by_another_flow() -> bool:
    """Whether this flow run is a stage of another one, here or as its deployed child."""
    context = FlowRunContext.get()
    return context is not None and context.flow_run is not None and bool(context.flow_run.parent_task_run_id)


def run_by_a_worker() -> bool:
    """Whether this very flow run is what a worker started this process for."""
    this = flow_run_id()
    return this is not None and str(this) == os.environ.get("PREFECT__FLOW_RUN_ID")


def as_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as they travel to a deployment and stand in `config.json`."""
    return {
        name: value.model_dump(mode="json") if isinstance(value, Config) else value
        for name, value in parameters.items()
    }


@contextlib.contextmanager
def logged(run: Run) -> Iterator[None]:
    """Append what our modules log to the run's `logs.log`, if its root is a local folder."""
    if not run.store.is_local:
        yield
        return
    handler = logging.FileHandler(Path(run.store.path("logs.log")))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    with logging_to(handler):
        yield


@contextlib.contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """Give what our modules log to a handler for as long as the block lasts."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(handler)
        handler.close()
