"""`kill -9` in the middle of every stage: the same command goes on, and ends where it would have ended.

The run that is killed has judges of its own for the evaluations, so they work beside RL and best of N. The
other run does one thing at a time.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[2]
STAGES = ("ingest", "index", "cold-start", "evaluate-before", "train", "evaluate-after", "best-of-n")
TABLES = (
    "evaluate-before/evaluations.parquet",
    "evaluate-after/problems.parquet",
    "evaluate-after/evaluations.parquet",
    "snapshot/exemplars.parquet",
)
CLOCKS = ("seconds", "tokens_per_s")
OWN_JUDGES = "evaluate.gym.workers=1"


def start(root, api, log, *words):
    """`dojo pipeline smoke` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "pipeline", "smoke", f"root={root}", *words],
        cwd=REPOSITORY,
        env=os.environ | {"PREFECT_API_URL": api, "OMP_NUM_THREADS": "1"},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def results(root):
    """Everything a run found out, without clocks."""
    store = Run(str(root), "smoke").store
    tables = {
        name: pq.read_table(store.path(name))
        .to_pandas()
        .drop(columns=list(CLOCKS), errors="ignore")
        .to_dict()
        for name in TABLES
    }
    metrics = [
        {key: value for key, value in line.items() if not any(clock in key for clock in CLOCKS)}
        for line in store.lines("metrics.jsonl")
    ]
    return tables, metrics


@pytest.mark.slow
def test_a_pipeline_killed_in_every_stage_ends_as_an_undisturbed_one(prefect_api, tmp_path):
    with (tmp_path / "log").open("w") as log:
        assert start(tmp_path / "whole", prefect_api, log).wait() == 0
        killed_in = []
        run = Run(str(tmp_path / "cut"), "smoke")
        while True:
            process = start(tmp_path / "cut", prefect_api, log, OWN_JUDGES)
            while process.poll() is None:
                at_work = run.stage_at_work()
                if at_work and at_work not in killed_in:
                    time.sleep(0.5)
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    killed_in.append(at_work)
                time.sleep(0.05)
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
            assert run.state().condition == "dead"
    assert set(killed_in) == set(STAGES)
    assert "in the background" in (tmp_path / "cut" / "smoke" / "logs.log").read_text()
    assert "in the background" not in (tmp_path / "whole" / "smoke" / "logs.log").read_text()
    assert repr(results(tmp_path / "cut")) == repr(results(tmp_path / "whole"))
