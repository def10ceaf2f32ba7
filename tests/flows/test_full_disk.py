"""A disk that fills up in the middle of a run: one clear line, nothing lost, and the same command goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path):
    """A file system of a size that can be changed: `disk(SIZE)` makes it that large; gives its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def resize(size):
        option = "remount," if folder.is_mount() else ""
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"{option}size={size}", "tmpfs", str(folder)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        return folder

    yield resize
    if folder.is_mount():
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize(
    ("stage", "too_small", "done"),
    [
        pytest.param(["ingest", "generator_rows=60"], "60k", set()),
        pytest.param(["train", "smoke"], "1m", {"ingest", "index"}, marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_loses_nothing_and_the_same_command_goes_on(prefect_api, disk, stage, too_small, done):
    root = disk(too_small)
    command = [sys.executable, "-m", "flows.cli", *stage, f"root={root}", "run=full"]
    environment = os.environ | {"PREFECT_API_URL": prefect_api, "OMP_NUM_THREADS": "1"}

    full = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    told = [line for line in full.stderr.splitlines() if line.startswith("dojo:")]
    assert full.returncode == 3, full.stderr
    assert len(told) == 1 and "No space left" in told[0], full.stderr
    assert "Traceback" not in full.stderr
    run = Run(str(root), "full")
    before = {record.stage for record in run.stages() if record.status == "done"}
    assert before == done

    disk("200m")
    again = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert run.state().condition == "finished"
    if stage[0] == "train":
        assert [line["step"] for line in run.store.lines("metrics.jsonl")] == [0, 1, 2]
