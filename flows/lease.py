"""End a worker's flow run that is no longer wanted, so that its GPU is free.

A live worker ends the process of a cancelled run. A worker that was killed cannot, and the run would train
on in `Cancelling`: so the process watches the state of its own flow run.

`kill -9` of a parent leaves its child running on another worker, although no process waits for it. So the
child also looks at the run's `state.json`, which the parent keeps fresh: when the owner has been gone for a
while, the child ends itself. A parent that is started again before that adopts it; one that comes later makes
another attempt, which goes on from what the child had finished.

Prefect's engine would report the stopped process as `Crashed`, over `Cancelled`. So a cancelled run gets its
last state here, and the engine is told by Prefect's `Abort` to leave that state as it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import Abort, PrefectException
from prefect.states import Cancelled

from kernel_core.errors import DojoError
from kernel_core.runs.run_folder import Run

LEASE_S = 120.0
"""Seconds that a child goes on after its parent was last known to live."""
WORKER_S = 30.0
"""Seconds that a worker has to end a cancelled run before the run ends itself."""
LOOK_EVERY_S = 10.0
STOP_GRACE_S = 60.0
ENDED = "Flow run was cancelled; what it had finished is kept."

log = logging.getLogger(__name__)


@contextlib.contextmanager
def wanted(owner: Run | None, flow_run: UUID | None) -> Iterator[None]:
    """End this process while the block lasts if it is no longer wanted.

    That is `LEASE_S` after the run `owner` lost its owner, or `WORKER_S` after the state of `flow_run` began
    to say that it is cancelled or over. However the block ends: if the flow run was cancelled meanwhile, its
    last state is `Cancelled`, and Prefect's `Abort` is raised.
    """
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(owner, flow_run, over), daemon=True, name="wanted")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        if flow_run is not None and _ends_as_cancelled(flow_run):
            raise Abort(ENDED)


def _watch(owner: Run | None, flow_run: UUID | None, over: threading.Event) -> None:
    owned_at = asked_for_at = time.monotonic()
    while not over.wait(LOOK_EVERY_S):
        now = time.monotonic()
        owned_at = now if owner is None or _is_owned(owner) else owned_at
        asked_for_at = now if flow_run is None or _is_asked_for(flow_run) else asked_for_at
        if now - owned_at > LEASE_S:
            log.error("the flow that started this is gone; ending it. Start that flow again to go on")
        elif now - asked_for_at > WORKER_S:
            log.error("this flow run was cancelled and no worker ends it; ending it")
        else:
            continue
        os.kill(os.getpid(), signal.SIGTERM)
        if not over.wait(STOP_GRACE_S):
            if flow_run is not None:
                _ends_as_cancelled(flow_run)
            os.kill(os.getpid(), signal.SIGKILL)
        return


def _is_asked_for(flow_run: UUID) -> bool:
    """Return True unless the flow run is cancelled or over; True while the API is away."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run).state
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("cannot read the state of this flow run: %s", error)
        return True
    return state is None or not (state.is_cancelling() or state.is_final())


def _ends_as_cancelled(flow_run: UUID) -> bool:
    """Return True if the flow run was cancelled, after setting the state that its worker would have set."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run).state
            if state is not None and state.is_cancelling():
                state = client.set_flow_run_state(flow_run, Cancelled(message=ENDED), force=True).state
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("cannot set the last state of this flow run: %s", error)
        return False
    return state is not None and state.is_cancelled()


def _is_owned(run: Run) -> bool:
    """Return True while a live flow owns the run, or the store is away."""
    try:
        state = run.state()
    except DojoError as error:
        log.warning("cannot read the owner of run %s: %s", run.name, error)
        return True
    return state is not None and state.condition == "running"
