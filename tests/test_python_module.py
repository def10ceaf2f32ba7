"""Files beside a user's kernel are not imported by the processes that we start."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.python_module import import_environment, module_command
from tests.test_cli import KERNEL, PROBLEM

SHADOWS = ("json", "types", "cuda", "triton", "numpy", "kernel_core")
MARK = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch(); raise SystemExit(9)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(MARK)
    return tmp_path


@pytest.mark.parametrize("path", ["", ".", "/nowhere:", ":/nowhere"])
def test_a_module_does_not_import_from_the_working_folder(monkeypatch, folder, path):
    monkeypatch.setenv("PYTHONPATH", path)
    command = module_command("kernel_core.store")
    result = subprocess.run(command, cwd=folder, env=import_environment(), capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    assert not list(folder.glob("*.ran"))


def test_absolute_entries_of_pythonpath_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}::relative")
    path = import_environment()["PYTHONPATH"].split(":")
    assert path[1:] == [str(tmp_path)]
    assert (Path(path[0]) / "kernel_core" / "errors.py").is_file()


@pytest.mark.exhaustive
def test_a_kernel_is_judged_beside_files_with_names_of_modules(folder):
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "kernel.py").write_text(KERNEL)
    dojo = Path(sys.executable).with_name("dojo")
    command = [dojo, "judge", "--problem", "problem.py", "--kernel", "kernel.py", "--seed", "5"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "correct" in result.stdout, result.stderr
    assert not list(folder.glob("*.ran"))
