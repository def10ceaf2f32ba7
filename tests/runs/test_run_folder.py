"""A run's folder: who works on it, and what a dead process leaves behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from kernel_core.errors import ConfigError, NotFound
from kernel_core.runs.run_folder import Run, find_run, list_runs, process_identity


def owner_process(root, body="time.sleep(3600)"):
    """Another process that owns run `busy` and then does something."""
    code = textwrap.dedent(
        f"""
        import time
        from kernel_core.runs.run_folder import Run
        with Run({str(root)!r}, "busy").owned("train", {{"run": "busy"}}):
            print("owned", flush=True)
            {body}
        """
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip() == "owned"
    return process


def test_a_finished_run_says_so_and_keeps_its_command(tmp_path):
    run = Run(str(tmp_path), "first")
    with run.owned("train", {"config": {"steps": 3}}):
        assert run.state().condition == "running"
    assert run.state().condition == "finished"
    assert run.command() == {"flow": "train", "parameters": {"config": {"steps": 3}}}


def test_a_failed_run_never_looks_finished_and_says_why(tmp_path):
    run = Run(str(tmp_path), "first")
    with pytest.raises(RuntimeError), run.owned("train", {}):
        raise RuntimeError("the disk is on fire\nand more")
    assert run.state().condition == "failed"
    assert run.state().message == "the disk is on fire"


def test_a_stopped_run_says_that_it_goes_on(tmp_path):
    run = Run(str(tmp_path), "first")
    with pytest.raises(KeyboardInterrupt), run.owned("train", {}):
        raise KeyboardInterrupt
    assert run.state().condition == "stopped"


def test_a_killed_owner_is_dead_and_the_run_can_be_taken_over(tmp_path):
    process = owner_process(tmp_path)
    run = Run(str(tmp_path), "busy")
    assert run.state().condition == "running"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run.state().status == "running"
    assert run.state().condition == "dead"
    with run.owned("train", {}):
        assert run.state().pid == os.getpid()


def test_a_run_has_one_owner_at_a_time(tmp_path):
    process = owner_process(tmp_path)
    try:
        with (
            pytest.raises(ConfigError, match=f"process {process.pid} .* run=NAME"),
            Run(str(tmp_path), "busy").owned("train", {}),
        ):
            pass
    finally:
        process.kill()
        process.wait()


def test_a_process_number_that_was_given_to_another_process_is_not_alive(tmp_path):
    run = Run(str(tmp_path), "first")
    with run.owned("train", {}):
        state = run.state().model_dump()
    state |= {"status": "running", "process": state["process"] + "0"}
    run.store.write_json("state.json", state)
    assert run.state().condition == "dead"


def test_another_host_is_believed_only_while_it_is_heard_of(tmp_path):
    run = Run(str(tmp_path), "first")
    with run.owned("train", {}):
        state = run.state().model_dump()
    state |= {"status": "running", "host": "elsewhere"}
    run.store.write_json("state.json", state)
    assert run.state().condition == "running"
    run.store.write_json("state.json", state | {"seen_at": "2020-01-01T00:00:00.000+00:00"})
    assert run.state().condition == "dead"


def test_a_refused_command_leaves_the_run_as_it_was(tmp_path):
    run = Run(str(tmp_path), "first")
    with run.owned("train", {"config": {"steps": 3}}):
        pass
    with pytest.raises(ConfigError), run.owned("train", {"config": {"steps": 4}}):
        raise ConfigError("no")
    assert run.state().condition == "finished"
    assert run.command()["parameters"] == {"config": {"steps": 3}}


def test_runs_are_listed_with_the_newest_first_and_other_folders_left_out(tmp_path):
    for name in ("older", "newer"):
        with Run(str(tmp_path), name).owned("train", {}):
            time.sleep(0.01)
    (tmp_path / "_judged").mkdir()
    assert [run.name for run in list_runs(str(tmp_path))] == ["newer", "older"]


def test_a_run_that_is_not_there_names_the_nearest(tmp_path):
    with Run(str(tmp_path), "quickstart").owned("train", {}):
        pass
    with pytest.raises(NotFound, match="did you mean quickstart"):
        find_run(str(tmp_path), "quikstart")
    with pytest.raises(NotFound, match="runs list"):
        find_run(str(tmp_path), "zzz")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "_judged", "a b"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="run name"):
        Run(str(tmp_path), name)


def test_a_process_that_never_was_has_no_identity():
    assert process_identity(2**22 + 1) is None
    assert process_identity(os.getpid()) == process_identity(os.getpid())


def test_the_state_file_is_plain_json_for_other_tools(tmp_path):
    run = Run(str(tmp_path), "first")
    with run.owned("train", {}):
        state = json.loads((tmp_path / "first" / "state.json").read_text())
    assert {"status", "pid", "process", "host", "started_at", "seen_at"} <= state.keys()


def test_an_evaluation_inside_a_run_of_another_flow_leaves_the_runs_command(tmp_path):
    run = Run(str(tmp_path), "mine")
    with run.owned("pipeline", {"mode": "inline"}):
        pass
    with run.owned("evaluate", {"name": "x"}, adds=True):
        pass
    assert run.command() == {"flow": "pipeline", "parameters": {"mode": "inline"}}


def test_a_run_that_an_evaluation_began_has_its_command(tmp_path):
    run = Run(str(tmp_path), "mine")
    for name in ("x", "y"):
        with run.owned("evaluate", {"name": name}, adds=True):
            pass
    assert run.command() == {"flow": "evaluate", "parameters": {"name": "y"}}
