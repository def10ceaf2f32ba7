"""Frame of every flow: the run's folder with its owner, its log and the settings that the UI shows."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.states import Crashed

from flows.lease import wanted
from flows.preflight import check_before_start
from flows.run_names import as_json
from flows.server import send_queued
from kernel_core.errors import OurFault
from kernel_core.report.pages import settings_rows
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.run_folder import Run
from tasks.artifacts import show
from tasks.progress import may_be_missed

log = logging.getLogger(__name__)

DIED = "Its process died. Another flow run has taken up its work."
LOGGERS = ("kernel_core", "tasks", "flows")
ADD = ("evaluate", "best-of-n", "verify")
"""Flows that add a folder to a run that another flow made; `dojo runs resume` goes on with that other one."""


@contextlib.contextmanager
def running(run: str, root: str, **settled: Any) -> Iterator[Run]:
    """Own and log the run's folder while the flow runs, with judges kept open meanwhile.

    The run keeps the flow's name and parameters, and the values that the flow has `settled` for them.
    On a worker, settings are checked against this host as the command line checks them, and all heartbeats
    leave before the flow run ends: a later one would begin the automation for lost runs anew.
    """
    context = FlowRunContext.get()
    if context is None or context.flow is None or context.flow_run is None:
        raise OurFault(f"run {run} was opened outside of a flow")
    here, flow, given = Run(root, run), context.flow.name, context.parameters or {}
    on_worker = run_by_a_worker()
    if on_worker:
        check_before_start(flow, given)
    effective = as_json({**given, **settled})
    with _owning(here, flow, effective, context.flow_run.id, on_worker=on_worker):
        with may_be_missed("settings"):
            show(settings_rows(here, flow, str(effective.get("name") or flow), effective))
            if on_worker:  # in place of what its caller typed
                with get_client(sync_client=True) as client:
                    client.update_flow_run(context.flow_run.id, parameters=as_json(given))
        try:
            yield here
        finally:
            if on_worker:
                send_queued()


@contextlib.contextmanager
def _owning(
    here: Run, flow: str, parameters: dict[str, Any], flow_run: UUID, *, on_worker: bool
) -> Iterator[None]:
    """Hold the run's folder as its owner, or as a stage of the flow that owns it.

    A flow that another flow started leaves owning the run to its parent; if a worker runs it, it goes on
    only while the parent is there.
    """
    if started_by_another_flow():
        with contextlib.ExitStack() as stack:
            if on_worker:
                stack.enter_context(wanted(here, flow_run))
                stack.enter_context(logged(here))
            yield
        return
    before = here.state()
    with (
        wanted(None, flow_run if on_worker else None),
        here.owned(flow, parameters, str(flow_run), adds=flow in ADD),
        logged(here),
        judges_kept(),
    ):
        if before is not None and before.condition == "dead" and before.flow_run is not None:
            mark_crashed(UUID(before.flow_run), successor=flow_run)
        yield


def mark_crashed(dead: UUID, *, successor: UUID) -> None:
    """Mark the flow run of a dead process as crashed, with its inline stages and task runs.

    The UI would show them as running for ever. Deployed stages have processes of their own. `successor` is
    the flow run that took up the work: the same one, if it was retried.
    """
    stages = FlowRunFilter(parent_flow_run_id={"any_": [dead]})
    try:
        with get_client(sync_client=True) as client:
            children = client.read_flow_runs(flow_run_filter=stages)
            ended = [*(run for run in children if not run.deployment_id), client.read_flow_run(dead)]
            for run in ended:
                if run.id != successor and run.state is not None and run.state.is_running():
                    client.set_flow_run_state(run.id, Crashed(message=DIED))
            for work in client.read_task_runs(
                flow_run_filter=FlowRunFilter(id={"any_": [run.id for run in ended]}),
                task_run_filter=TaskRunFilter(state={"type": {"any_": ["RUNNING"]}}),
            ):
                client.set_task_run_state(work.id, Crashed(message=DIED), force=True)
    except (httpx.HTTPError, PrefectException) as error:  # another server's, or deleted
        log.warning("could not mark flow run %s of a dead process as crashed: %s", dead, error)


def started_by_another_flow() -> bool:
    """Return True for a stage of another flow, inline or as its deployed child."""
    context = FlowRunContext.get()
    return context is not None and context.flow_run is not None and bool(context.flow_run.parent_task_run_id)


def run_by_a_worker() -> bool:
    """Return True if a worker started this process for this very flow run, not for its parent."""
    context = FlowRunContext.get()
    return context is not None and str(context.flow_run.id) == os.environ.get("PREFECT__FLOW_RUN_ID")


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
