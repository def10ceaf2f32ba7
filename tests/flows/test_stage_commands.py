"""`dojo STAGE` against a Prefect server: mistakes, Ctrl-C, and going on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.cli import run
from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ingest", "generator_rows=0", "decontaminate_against=[]", "run=empty"], ["generator_rows"]),
        (["index", "run=none"], ["no complete snapshot"]),
        (["evaluate", "policy.model=./nowhere", "problems.limit=1"], ["nowhere"]),
        (["evaluate", "checkpoint=nobody"], ["no run 'nobody'"]),
        (["best-of", "policy.kind=scripted", "policy.model=none.json"], ["none.json"]),
    ],
)
def test_a_mistake_inside_a_flow_is_one_line(prefect_api, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dojo:")]
    assert len(lines) == 1
    assert all(word in lines[0] for word in words)


@pytest.mark.exhaustive
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(prefect_api, tmp_path, monkeypatch):
    words = ["ingest", "generator_rows=100", "run=cut", "decontaminate_against=[dojo]"]
    command = [sys.executable, "-m", "flows.cli", *words]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PREFECT_API_URL": prefect_api}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    cut = Run(str(tmp_path / "runs"), "cut")
    while cut.stage_at_work() != "ingest" and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "the same command goes on" in errors and "Traceback" not in errors
    assert cut.state().condition == "stopped"
    monkeypatch.chdir(tmp_path)
    assert run(words) == 0
    assert cut.state().condition == "finished"


def test_ctrl_c_while_prefect_sets_up_a_task_is_a_stop(prefect_api, tmp_path, monkeypatch, capsys):
    """Prefect meets an interrupt there with an error of its own, because the task run has no state yet."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prefect.task_engine.dynamic_key_for_task_run", interrupted)
    assert run(["ingest", "generator_rows=100", "decontaminate_against=[]", "run=cut"]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert Run(str(tmp_path / "runs"), "cut").state().condition == "stopped"


LOGGED_OUTSIDE_A_FLOW = """
import logging
import prefect.main
from prefect.logging.configuration import setup_logging

setup_logging()
logging.getLogger("kernel_core.policy.openai_policy").warning("the endpoint is busy")
"""


@pytest.mark.exhaustive
def test_a_log_line_outside_of_a_flow_run_makes_no_warning_of_prefects():
    """A worker's process has the settings of `pyproject.toml`, not those of a `dojo` command."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", LOGGED_OUTSIDE_A_FLOW],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the endpoint is busy" in done.stderr and "UserWarning" not in done.stderr
