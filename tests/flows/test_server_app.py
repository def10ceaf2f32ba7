"""Our own server: Prefect's, set up for one person at a terminal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prefect import flow, task
from prefect.artifacts import create_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.events import emit_event
from prefect.events.filters import EventFilter, EventNameFilter, EventRelatedFilter
from prefect.futures import wait
from prefect.task_runners import ThreadPoolTaskRunner
from waiting import eventually

from flows.server import send_queued
from tasks.batches import AT_ONCE

NUM_TASKS = 120
"""Task runs that together leave the 500 events of two pipelines, in a minute instead of an hour."""

CONNECTED = """
import asyncio, signal, sys
import sqlalchemy
from flows.server_app import create_app

signal.signal(signal.SIGTERM, print)
create_app()
assert signal.getsignal(signal.SIGTERM) is print, "once it is made, who serves it ends it in order"
from prefect.server.database.configurations import AioSqliteConfiguration

async def ask():
    engine = await AioSqliteConfiguration(f"sqlite+aiosqlite:///{sys.argv[1]}").engine()
    async with engine.connect() as connection:
        for name in ("busy_timeout", "journal_mode"):
            print((await connection.execute(sqlalchemy.text(f"PRAGMA {name}"))).scalar())

asyncio.run(ask())
"""

UNWANTED = """
import os, signal, sys
from flows.server_app import create_app

class Unwanted:
    def find_spec(self, name, *_):
        if name.startswith("prefect"):
            os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGTERM, print)
sys.meta_path.insert(0, Unwanted())
create_app()
print("made")
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A Prefect home of its own."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PREFECT_HOME": str(tmp_path)}


@pytest.mark.exhaustive
def test_a_locked_database_is_waited_for_by_seconds_not_a_minute(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED, str(tmp_path / "one.db")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["10000", "wal"], "and all else is as Prefect sets it up"


def test_a_server_that_nobody_wants_any_more_ends_before_it_is_made(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNWANTED], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr


@task(task_run_name="{number}")
def reported(number: int) -> None:
    create_progress_artifact(float(number), key="burst", description="as a stage does every few seconds")
    emit_event("kernel-dojo.stage.promoted", resource={"prefect.resource.id": f"kernel-dojo.run.{number}"})


@flow(task_runner=ThreadPoolTaskRunner(max_workers=AT_ONCE))
def burst() -> None:
    wait(reported.map(range(NUM_TASKS)))


@pytest.mark.exhaustive
def test_sqlite_takes_the_events_of_a_pipeline_at_once_and_loses_none(prefect_api: str) -> None:
    ended = burst(return_state=True)
    send_queued()
    of_run = FlowRunFilter(id={"any_": [ended.state_details.flow_run_id]})
    completed = ["Completed"] * NUM_TASKS
    with get_client(sync_client=True) as client:

        def states():
            return [run.state_name for run in client.read_task_runs(flow_run_filter=of_run, limit=200)]

        assert eventually(states, completed.__eq__) == completed
    # A background service that meets a locked database tries again; no request may fail.
    log = (Path(os.environ["PREFECT_HOME"]) / "dojo-server.log").read_text()
    assert "Exception in ASGI application" not in log
    assert "dropping" not in log, "the reason stands beside it"
    ours = EventFilter(
        event=EventNameFilter(name=["kernel-dojo.stage.promoted"]),
        related=EventRelatedFilter(id=[f"prefect.flow-run.{ended.state_details.flow_run_id}"]),
    )
    with get_client(sync_client=True) as client:
        total = eventually(lambda: client.read_events(ours, limit=1).total, NUM_TASKS.__eq__)
    assert total == NUM_TASKS
