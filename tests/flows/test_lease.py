"""A child whose parent is gone ends itself, as does a cancelled run whose worker is gone; others go on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.states import Cancelled, Cancelling, Crashed
from waiting import LIMIT_S

from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[2]
CHILD = """
import signal, sys, time
import flows.lease
from kernel_core.runs.run_folder import Run
flows.lease.LEASE_S, flows.lease.LOOK_EVERY_S, flows.lease.STOP_GRACE_S = 1.0, 0.2, 1.0
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with flows.lease.wanted(Run(sys.argv[1], "leased"), None):
    print("at work", flush=True)
    time.sleep(float(sys.argv[2]))
print("done", flush=True)
"""
ON_A_WORKER = """
import os, signal, sys, time
import flows.lease
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from flows.running import running
from flows.stage_flow import stage_flow
flows.lease.LOOK_EVERY_S, flows.lease.STOP_GRACE_S = 0.2, 1.0
flows.lease.WORKER_S = float(sys.argv[2])

@stage_flow("left-alone", run_name="left-alone")
def left_alone(root: str = "runs") -> None:
    with running("left-alone", root):
        if "deaf" in sys.argv:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.environ["PREFECT__FLOW_RUN_ID"], flush=True)
        sys.stdin.readline()

with get_client(sync_client=True) as client:
    flow_run = client.create_flow_run(left_alone, parameters={"root": sys.argv[1]})
    os.environ["PREFECT__FLOW_RUN_ID"] = str(flow_run.id)
    run_flow(left_alone, flow_run=flow_run)
"""
OWNER = """
import sys
from kernel_core.runs.run_folder import Run
with Run(sys.argv[1], "leased").owned("pipeline", {}):
    print("owning", flush=True)
    sys.stdin.readline()
"""


def rarely(*case):
    """A case outside the fast suite: each takes a process with Prefect."""
    return pytest.param(*case, marks=pytest.mark.exhaustive)


def start(code, *arguments, **environment):
    """A process that has said its first word, and that word."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    word = process.stdout.readline().strip()
    assert word
    return process, word


@pytest.fixture
def owner(tmp_path):
    process, _ = start(OWNER, str(tmp_path))
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(("options", "ending"), [rarely([], signal.SIGTERM), (["deaf"], signal.SIGKILL)])
def test_a_child_of_a_killed_parent_ends_itself_even_if_it_does_not_listen(tmp_path, owner, options, ending):
    owner.kill()
    owner.wait()
    assert Run(str(tmp_path), "leased").state().condition == "dead"
    child, _ = start(CHILD, str(tmp_path), "60", *options)
    assert child.wait(timeout=LIMIT_S) == -ending


@pytest.mark.exhaustive
def test_a_child_of_a_living_parent_goes_on_to_its_end(tmp_path, owner):
    child, _ = start(CHILD, str(tmp_path), "4")
    assert child.wait(timeout=LIMIT_S) == 0
    assert child.stdout.read() == "done\n"


def states_of(client, flow_run):
    """Types of the states that a flow run was in, oldest first, since it began to run."""
    history = sorted(client.read_flow_run_states(flow_run), key=lambda state: state.timestamp)
    names = [state.type.value for state in history]
    return names[names.index("RUNNING") :]


@pytest.mark.parametrize(
    ("asked", "options", "states"),
    [
        rarely(Cancelling(), [], ["RUNNING", "CANCELLING", "CANCELLED"]),
        rarely(Cancelling(), ["deaf"], ["RUNNING", "CANCELLING", "CANCELLED"]),
        rarely(Cancelled(), [], ["RUNNING", "CANCELLED"]),
        rarely(Crashed(), [], ["RUNNING", "CRASHED", "CRASHED"]),
    ],
)
def test_a_run_that_is_over_while_its_worker_is_gone_ends_itself_as_it_was_asked_to(
    prefect_api, tmp_path, asked, options, states
):
    work, flow_run = start(ON_A_WORKER, str(tmp_path), "1", *options, PREFECT_API_URL=prefect_api)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run, asked, force=True)
        work.wait(timeout=LIMIT_S)
        assert states_of(client, flow_run) == states


@pytest.mark.parametrize(
    ("asked", "states"),
    [rarely([], ["RUNNING", "COMPLETED"]), rarely([Cancelling()], ["RUNNING", "CANCELLING", "CANCELLED"])],
)
def test_a_run_that_is_done_ends_at_once_as_completed_or_if_it_was_cancelled_as_cancelled(
    prefect_api, tmp_path, asked, states
):
    work, flow_run = start(ON_A_WORKER, str(tmp_path), "60", PREFECT_API_URL=prefect_api)
    with get_client(sync_client=True) as client:
        for state in asked:
            client.set_flow_run_state(flow_run, state, force=True)
        work.communicate("go on\n", timeout=LIMIT_S)
        assert states_of(client, flow_run) == states


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
