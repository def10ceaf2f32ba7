"""The traps of Prefect that docs/traps.md lists, as far as another test does not stand for them."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from prefect import Task, flow
from prefect.client.orchestration import get_client
from server_pages import all_pages

import tasks
from flows.commands.local import POOLS
from flows.presets import PREFECT_YAML, STAGES, load_flow
from flows.server import SETTINGS, ui_server
from kernel_core.report.markdown import MAX_BYTES
from kernel_core.report.pages import Page
from tasks.artifacts import show
from tasks.gpu import gpu_slot

REPOSITORY = Path(__file__).parents[2]
DEPLOYMENTS = yaml.safe_load(PREFECT_YAML.read_text())["deployments"]


def every_task():
    """Every Prefect task of ours."""
    modules = [
        importlib.import_module(f"tasks.{found.name}") for found in pkgutil.iter_modules(tasks.__path__)
    ]
    return {value for module in modules for value in vars(module).values() if isinstance(value, Task)}


def test_1_schedules_need_the_older_sqlalchemy():
    pinned = (REPOSITORY / "requirements.lock").read_text()
    assert "\nsqlalchemy==2.0." in pinned


def test_2_a_flow_in_process_is_not_rounded_up_to_seconds(prefect_api):
    @flow
    def quick() -> None:
        pass

    quick()
    assert any(_timed(quick) < 0.9 for _ in range(100)), "a heartbeat makes each of them at least a second"


def _timed(call):
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_5_no_pool_has_a_limit_that_a_lost_run_could_hold():
    """GPUs are limited by the deployment, the strict `cuda` limit and the worker, which all heal."""
    source = (REPOSITORY / "flows" / "commands" / "deploy.py").read_text()
    assert 'WorkPoolCreate(name=pool, type="process")' in source
    assert dict(POOLS)["cuda"] == ("--limit", "1")


def test_6_the_automation_for_lost_runs_cannot_touch_a_finished_one():
    from flows.automations import AUTOMATIONS_YAML, load_automations

    lost = load_automations(AUTOMATIONS_YAML, None)[0]
    assert not lost["actions"][0].get("force")
    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    assert ends <= set(lost["trigger"]["expect"])


def test_6_runs_of_workers_send_the_heartbeats_that_it_waits_for():
    for deployment in DEPLOYMENTS:
        environment = deployment["work_pool"]["job_variables"]["env"]
        assert float(environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) * 4 <= 240


def test_12_no_task_relies_on_a_timeout_of_prefects_which_does_not_stop_threads():
    found = every_task()
    assert len(found) > 8
    assert all(task.timeout_seconds is None for task in found)


def test_13_a_gpu_slot_without_its_limit_is_an_error(prefect_api, monkeypatch):
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "a worker's")
    monkeypatch.setattr("tasks.gpu.GPU_LIMIT", "never-made")
    with pytest.raises(Exception, match="never-made"), gpu_slot("cuda"):
        pass


def test_15_what_a_parent_sends_is_far_below_the_limit_of_parameters():
    assert max(len(json.dumps(deployment["parameters"])) for deployment in DEPLOYMENTS) < 20_000


def test_15_a_page_is_cut_below_the_limit_of_events(prefect_api, tmp_path):
    from kernel_core.store import Store

    show(Page("a-long-page", ["x" * 1000] * 2000, Store(tmp_path), "A page that is cut"))
    with get_client(sync_client=True) as client:
        (page,) = [artifact for artifact in all_pages(client.read_artifacts) if artifact.key == "a-long-page"]
    assert MAX_BYTES * 0.9 < len(page.data) < MAX_BYTES * 1.1
    assert "the rest is too long" in page.data and str(tmp_path) in page.data


@pytest.mark.parametrize("stage", STAGES)
def test_16_flows_give_nothing_back_so_that_no_result_is_pickled_anywhere(stage):
    loaded = load_flow(stage)
    assert loaded.fn.__annotations__["return"] == "None"
    assert not loaded.persist_result


def test_17_the_ui_is_told_its_port():
    url, command, settings = ui_server(4711)
    assert "4711" in command and settings == {"PREFECT_API_URL": url, "PREFECT_UI_API_URL": url}
    assert url == "http://127.0.0.1:4711/api"


def test_18_sqlite_is_waited_for_a_minute():
    assert SETTINGS["PREFECT_SERVER_DATABASE_TIMEOUT"] == "60"


@pytest.mark.slow
def test_19_two_servers_that_start_at_once_on_a_fresh_database_both_come_up(tmp_path):
    code = "from flows.server import *; prepare_environment()\nwith starting_server() as url: print(url())"
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            env={**_environment(), "PREFECT_HOME": str(tmp_path)},
        )
        for _ in range(2)
    ]
    assert [process.wait(timeout=240) for process in starts] == [0, 0]


def _environment():
    return {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}


def test_20_what_local_starts_can_be_stopped_though_its_parent_ignores_signals(tmp_path):
    code = """
import os, pathlib, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from flows.commands.local import Service
says = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
service = Service("probe", [sys.executable, "-c", says], dict(os.environ), pathlib.Path("."))
service.process.wait()
print(service.log.read_text())
"""
    environment = _environment() | {"PREFECT_HOME": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )
    assert said.stdout.strip() == "True", said.stderr
