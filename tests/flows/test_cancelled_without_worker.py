"""A real worker is killed, then its run is cancelled: the run itself sets its last state."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.fixtures.stack import stack

SETTINGS = {
    "problems": {"split": "held_out", "limit": 400, "seed": 1000},
    "samples_per_problem": 4,
    "rollout": {"turns": 3},
    "gym": {"workers": 1, "compile_gate": False},
}


@pytest.mark.slow
def test_a_run_that_is_cancelled_after_its_worker_was_killed_ends_as_cancelled(tmp_path):
    with stack(tmp_path) as here:
        run = here.start(
            "evaluate/held-out", {"config": SETTINGS, "run": "evaluate", "root": str(tmp_path / "runs")}
        )
        deadline = time.monotonic() + 240
        while not (tmp_path / "runs" / "evaluate" / "evaluate" / "judged").exists():
            assert time.monotonic() < deadline, here.last_words(run)
            time.sleep(0.5)
        work = here.process_of(run)
        for pid in here.processes("worker start", "--pool cpu"):
            os.kill(pid, signal.SIGKILL)
        here.cancel(run)
        ended = here.wait(run, 240)
        states = here.ask("GET", f"/flow_run_states/?flow_run_id={run}")
        while Path(f"/proc/{work}").exists():
            assert time.monotonic() < deadline + 300, "its process is still there"
            time.sleep(0.5)
    names = [state["name"] for state in sorted(states, key=lambda state: state["timestamp"])]
    assert ended["state_type"] == "CANCELLED" and "timed out" not in ended["state"]["message"]
    assert names[names.index("Running") :] == ["Running", "Cancelling", "Cancelled"]
