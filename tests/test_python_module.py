"""A process of ours imports no module from the folder that it is started in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_core.python_module import import_environment, module_command


@pytest.mark.parametrize("name", ["types", "importlib"])
def test_a_file_beside_a_kernel_takes_the_place_of_no_module(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(module_command("this"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_relative_path_is_not_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".::kernels")
    (tmp_path / "mine.py").write_text("")
    done = subprocess.run(
        module_command("mine"), env=import_environment(), capture_output=True, text=True, check=False
    )
    assert "No module named mine" in done.stderr
