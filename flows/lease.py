"""A deployed stage holds its GPU only as long as the flow that asked for it is there.

`kill -9` of a parent leaves its child running on another worker, although no process waits for it. So the
child looks at the run's `state.json`, which the parent keeps fresh: when the owner has been gone for a while,
the child ends itself. A parent that is started again before that adopts it; one that comes later makes
another attempt, which goes on from what the child had finished.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator

from kernel_core.errors import DojoError
from kernel_core.runs.run_folder import Run

LEASE_S = 120.0
"""How long after its parent was last known to live a child goes on."""
LOOK_EVERY_S = 10.0
STOP_GRACE_S = 60.0

log = logging.getLogger(__name__)


@contextlib.contextmanager
def leased(run: Run) -> Iterator[None]:
    """End this process if the run has had no owner for `LEASE_S`, for as long as the block lasts."""
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(run, over), daemon=True, name="lease")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(run: Run, over: threading.Event) -> None:
    owned_at = time.monotonic()
    while not over.wait(LOOK_EVERY_S):
        if _is_owned(run):
            owned_at = time.monotonic()
        elif time.monotonic() - owned_at > LEASE_S:
            log.error("the flow that started this is gone; ending it. Start that flow again to go on")
            os.kill(os.getpid(), signal.SIGTERM)
            if not over.wait(STOP_GRACE_S):
                os.kill(os.getpid(), signal.SIGKILL)
            return


def _is_owned(run: Run) -> bool:
    """Whether a live flow owns the run; yes while the store cannot say."""
    try:
        state = run.state()
    except DojoError as error:
        log.warning("cannot read the owner of run %s: %s", run.name, error)
        return True
    return state is not None and state.condition == "running"
