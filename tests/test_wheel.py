"""The wheel holds all that its commands read: it works in an empty folder, without a checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The wheel, built and unpacked as an installation would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


COMMANDS = """
from flows.cli import run
for words in ("pipeline smoke", "evaluate problems.suite=dojo", "deploy"):
    print("exit code", run([*words.split(), "--dry-run"]), "of", words)
"""


def test_commands_find_presets_problems_policy_and_automations_in_it(unpacked, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    environment |= {"PYTHONPATH": str(unpacked), "PREFECT_HOME": str(tmp_path / "prefect")}
    command = [sys.executable, "-c", COMMANDS]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert said.stdout.count("exit code 0 of") == 3, said.stderr
