"""`dojo judge --watch` judges a kernel whenever it is saved, with one judge that stays open."""

import json
import re
import signal
import subprocess
import sys

import pytest
from exploit_files import EXPLOITS, text_of
from waiting import LIMIT_S


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
        save(kernel, "class ModelNew(:")
        second = json.loads(watching.stdout.readline())
        save(kernel, honest + "\n# again\n")
        third = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=LIMIT_S) == 130
    finally:
        watching.kill()
    assert [one["verdict"] for one in (first, second, third)] == ["correct", "malformed", "correct"]


def test_each_verdict_of_a_watched_kernel_has_its_time_and_no_conditions_again(tmp_path):
    """Text that is not Python needs no judge, so this is fast."""
    kernel, errors = tmp_path / "kernel.py", tmp_path / "errors.txt"
    kernel.write_text("class ModelNew(:")
    problem = EXPLOITS / "problems" / "softmax_rows.py"
    command = [sys.executable, "-m", "flows.cli", "judge", "--problem", str(problem), "--kernel", str(kernel)]
    with errors.open("w") as file:
        watching = subprocess.Popen([*command, "--watch"], stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        first = until(watching.stdout, "sizes")
        save(kernel, "class ModelNew(::")
        second = until(watching.stdout, "feedback")
        watching.send_signal(signal.SIGINT)
        rest = watching.stdout.read()
    finally:
        watching.kill()
    for shown in (first, second):
        assert re.search(r"kernel\.py \d\d:\d\d:\d\d ─", shown) and "malformed" in shown
    assert "candidate_sha" in first and "candidate_sha" not in second + rest
    told = errors.read_text()
    assert "judging" in told and "watching" in told and "Ctrl-C" in told


def save(file, text):
    """Replace a file at once: who looks meanwhile never sees a part of the text."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def until(stream, key):
    """The lines of a stream up to the row of this key."""
    lines = []
    while not lines or not lines[-1].startswith(f" {key}"):
        lines.append(stream.readline())
        assert lines[-1], "".join(lines)
    return "".join(lines)
