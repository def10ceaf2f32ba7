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
import data, flows, tasks
print("theirs", data.OWNER, flows.OWNER, tasks.OWNER)
from kernel_core.flows.cli import run
for words in ("pipeline smoke", "evaluate problems.suite=dojo", "deploy"):
    print("exit code", run([*words.split(), "--dry-run"]), "of", words)
"""


def test_it_has_one_package_and_the_module_that_verifiers_looks_for(unpacked):
    names = {path.name for path in unpacked.iterdir() if path.suffix != ".dist-info"}
    assert names == {"kernel_core", "kernel_dojo.py"}
    (entry_points,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert "dojo = kernel_core.flows.cli:main" in entry_points.read_text()


def test_commands_work_beside_a_users_own_packages_of_the_same_names(unpacked, tmp_path):
    for name in ("data", "flows", "tasks"):
        (tmp_path / f"{name}.py").write_text("OWNER = 'user'")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    path = os.pathsep.join(map(str, (tmp_path, unpacked)))
    environment |= {"PYTHONPATH": path, "PREFECT_HOME": str(tmp_path / "prefect")}
    command = [sys.executable, "-c", COMMANDS]
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "theirs user user user" in shown.stdout, shown.stderr
    assert shown.stdout.count("exit code 0 of") == 3, shown.stdout + shown.stderr
