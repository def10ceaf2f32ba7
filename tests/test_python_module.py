"""A process of ours imports no module from the folder that it is started in."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from kernel_core.config import GymConfig
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.python_module import import_environment, module_command
from tests.fixtures.processes import descendants


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


SECRETS = {"ENDPOINT_API_KEY": "sk-0123456789", "DATABASE_URL": "postgresql://me:pass1234@host/prefect"}


def test_no_secret_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert not SECRETS.keys() & import_environment().keys()
    assert import_environment()["PATH"] == os.environ["PATH"]


@pytest.mark.exhaustive
def test_no_process_below_a_judge_has_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with open_gym(GymConfig(workers=1)):
        environments = []
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended since
                environments.append(Path(f"/proc/{pid}/environ").read_bytes())
    assert environments
    assert not [name for name in SECRETS if any(name.encode() in text for text in environments)]
