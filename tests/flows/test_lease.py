"""A child whose parent is gone ends itself; one whose parent lives goes on."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Cancelled, Cancelling, Crashed, Running

from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[2]
CHILD = """
import signal, sys, time
from uuid import UUID
import flows.lease
from kernel_core.runs.run_folder import Run
flows.lease.LEASE_S, flows.lease.WORKER_S = 1.0, 1.0
flows.lease.LOOK_EVERY_S, flows.lease.STOP_GRACE_S = 0.2, 1.0
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
run, flow_run = (None, UUID(sys.argv[1])) if "state" in sys.argv else (Run(sys.argv[1], "leased"), None)
with flows.lease.wanted(run, flow_run):
    print("at work", flush=True)
    time.sleep(float(sys.argv[2]))
print("done", flush=True)
"""
OWNER = """
import sys, time
from kernel_core.runs.run_folder import Run
with Run(sys.argv[1], "leased").owned("pipeline", {}):
    print("owning", flush=True)
    time.sleep(60)
"""


@flow
def trains() -> None: ...


def start(code, *arguments):
    """A process that has said its first word."""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    return process


@pytest.fixture
def owner(tmp_path):
    process = start(OWNER, str(tmp_path))
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(("options", "ending"), [([], signal.SIGTERM), (["deaf"], signal.SIGKILL)])
def test_a_child_of_a_killed_parent_ends_itself_even_if_it_does_not_listen(tmp_path, owner, options, ending):
    owner.kill()
    owner.wait()
    assert Run(str(tmp_path), "leased").state().condition == "dead"
    child = start(CHILD, str(tmp_path), "60", *options)
    assert child.wait(timeout=50) == -ending


def test_a_child_of_a_living_parent_goes_on_to_its_end(tmp_path, owner):
    child = start(CHILD, str(tmp_path), "4")
    assert child.wait(timeout=60) == 0
    assert child.stdout.read() == "done\n"


@pytest.mark.parametrize(
    ("asked", "ends_as"),
    [(Cancelling(), "CANCELLED"), (Cancelled(), "CANCELLED"), (Crashed(), "CRASHED")],
)
def test_a_run_that_is_cancelled_while_its_worker_is_gone_ends_itself(
    prefect_api, monkeypatch, asked, ends_as
):
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(trains, state=Running())
        child = start(CHILD, str(flow_run.id), "60", "state")
        assert child.poll() is None
        client.set_flow_run_state(flow_run.id, asked, force=True)
        assert child.wait(timeout=50) == -signal.SIGTERM
        assert client.read_flow_run(flow_run.id).state.type.value == ends_as


def test_a_run_that_is_not_cancelled_goes_on_to_its_end(prefect_api, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(trains, state=Running())
        child = start(CHILD, str(flow_run.id), "4", "state")
        assert child.wait(timeout=60) == 0


def test_an_owner_on_another_host_is_known_by_its_heartbeat_whatever_this_clock_says(tmp_path, owner):
    """A clock ahead of ours does no harm; a heartbeat that stopped is what counts."""
    run = Run(str(tmp_path), "leased")
    far = run.state().model_copy(update={"host": "elsewhere"})
    for seen_at, condition in (
        ("2999-01-01T00:00:00+00:00", "running"),
        (far.seen_at, "running"),
        ("2001-01-01T00:00:00+00:00", "dead"),
    ):
        assert far.model_copy(update={"seen_at": seen_at}).condition == condition
