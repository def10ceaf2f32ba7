"""`dojo judge --watch` judges a kernel whenever it is saved, with one judge that stays open."""

import json
import signal
import subprocess
import sys

import pytest
from exploit_files import EXPLOITS, text_of


@pytest.mark.exhaustive
def test_a_kernel_is_judged_again_when_it_is_saved(tmp_path):
    kernel = tmp_path / "kernel.py"
    honest = text_of("honest_softmax")
    kernel.write_text(honest)
    problem = EXPLOITS / "problems" / "softmax_rows.py"
    command = [sys.executable, "-m", "flows.cli", "judge", "--problem", str(problem), "--kernel", str(kernel)]
    watching = subprocess.Popen([*command, "--watch", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        first = json.loads(watching.stdout.readline())
        kernel.write_text("class ModelNew(:")
        second = json.loads(watching.stdout.readline())
        kernel.write_text(honest + "\n# again\n")
        third = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=60) == 130
    finally:
        watching.kill()
    assert [one["verdict"] for one in (first, second, third)] == ["correct", "malformed", "correct"]
