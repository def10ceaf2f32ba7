"""Who takes up the run of a process that died tells the server that it did."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.states import Completed, Running
from waiting import eventually

from flows.running import DIED, running
from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[2]


@flow(name="took-up")
def took_up(root: str) -> None:
    with running("mine", root):
        pass


@flow
def died() -> None: ...


@task
def stage() -> None: ...


def left_by_a_dead_process(root, flow_run):
    run = Run(root, "mine")
    with run.owned("train", {}, flow_run):
        state = run.state()
    run.store.write_json("state.json", state.model_copy(update={"process": "gone"}).model_dump())


def test_the_flow_run_of_a_dead_process_is_crashed_when_its_run_goes_on(prefect_api, tmp_path):
    with get_client(sync_client=True) as client:
        before = client.create_flow_run(died, state=Running())
        left_by_a_dead_process(str(tmp_path), str(before.id))
        took_up(str(tmp_path))
        state = client.read_flow_run(before.id).state
        assert state.is_crashed() and state.message == DIED
        newest = Run(str(tmp_path), "mine").state().flow_run
        assert client.read_flow_run(newest).state.is_completed()


def test_stages_and_tasks_of_that_process_are_crashed_and_those_that_ended_or_are_deployed_are_not(
    prefect_api, tmp_path
):
    with get_client(sync_client=True) as client:
        before = client.create_flow_run(died, state=Running())
        deployment = client.create_deployment(before.flow_id, "elsewhere")
        waits = [client.create_task_run(stage, before.id, dynamic_key=str(key)).id for key in range(2)]
        inside, ended = (
            client.create_flow_run(died, parent_task_run_id=waits[0], state=state)
            for state in (Running(), Completed())
        )
        elsewhere = client.create_flow_run_from_deployment(
            deployment, parent_task_run_id=waits[1], state=Running()
        )
        working, done = (
            client.create_task_run(stage, inside.id, dynamic_key=state.name, state=state)
            for state in (Running(), Completed())
        )
        left_by_a_dead_process(str(tmp_path), str(before.id))
        took_up(str(tmp_path))
        states = [client.read_flow_run(one.id).state.name for one in (inside, ended, elsewhere)]
        tasks = [client.read_task_run(one.id).state for one in (working, done)]
    assert states == ["Crashed", "Completed", "Running"]
    assert [state.name for state in tasks] == ["Crashed", "Completed"] and tasks[0].message == DIED


def test_a_flow_run_that_the_server_does_not_know_stops_nobody(prefect_api, tmp_path):
    left_by_a_dead_process(str(tmp_path), "00000000-0000-4000-8000-000000000000")
    took_up(str(tmp_path))
    assert Run(str(tmp_path), "mine").state().condition == "finished"


QUICK = """
import os, sys, threading
from prefect.client.orchestration import get_client
from prefect.flow_engine import FlowRunEngine, run_flow
from flows.running import running
from flows.stage_flow import stage_flow

made, emit = threading.Event(), FlowRunEngine._emit_flow_run_heartbeat
FlowRunEngine._emit_flow_run_heartbeat = lambda self, *event: (emit(self, *event), made.set())

@stage_flow("quick", run_name="quick")
def quick(root: str = "runs") -> None:
    with running("quick", root):
        made.wait()

with get_client(sync_client=True) as client:
    flow_run = client.create_flow_run(quick, parameters={"root": sys.argv[1]})
    os.environ["PREFECT__FLOW_RUN_ID"] = str(flow_run.id)
    run_flow(quick, flow_run=flow_run)
print(flow_run.id)
"""


@pytest.mark.exhaustive
def test_the_heartbeats_of_a_short_run_on_a_worker_arrive_before_its_end(prefect_api, tmp_path):
    """One that arrived later would have `dojo-lost-runs` wait for another, and fire on a finished run."""
    environment = os.environ | {"PREFECT_API_URL": prefect_api, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
    command = [sys.executable, "-c", QUICK, str(tmp_path)]
    said = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    of_run = {"any_resource": {"id": [f"prefect.flow-run.{said.stdout.split()[-1]}"]}}

    def received_at():
        answer = httpx.post(f"{prefect_api}/events/filter", json={"filter": of_run, "limit": 50}, timeout=60)
        return {event["event"].rpartition(".")[2]: event["received"] for event in answer.json()["events"]}

    received = eventually(received_at, lambda received: {"heartbeat", "Completed"} <= received.keys())
    assert received.get("heartbeat", "") < received["Completed"]
