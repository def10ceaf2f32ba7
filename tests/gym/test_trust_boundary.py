"""The trust boundary is held by import-linter: an import across it, planted in a copy, breaks a contract."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
_PLANTED = [
    (
        "kernel_core.gym.untrusted.candidate.runner",
        "kernel_core.gym.judge.judge",
        "Nothing that runs beside a candidate imports the judge",
    ),
    (
        "kernel_core.gym.untrusted.replay.input_swap",
        "kernel_core.gym.oracle.reference",
        "Nothing that runs beside a candidate imports the judge",
    ),
    (
        "kernel_core.gym.judge.replay_check",
        "kernel_core.gym.untrusted.replay.trace_player",
        "The judge imports nothing that runs beside a candidate",
    ),
    (
        "kernel_core.gym.numerics.compare",
        "kernel_core.gym.untrusted.interpreter.memory_meter",
        "The judge imports nothing that runs beside a candidate",
    ),
    (
        "kernel_core.gym.untrusted.compile.rebuild_kernels",
        "kernel_core.gym.numerics.error_model",
        "Beside a candidate, only the replay compares numbers",
    ),
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their contracts, in a folder where they may be changed."""
    folder = tmp_path_factory.mktemp("copied")
    for name in ("flows", "tasks", "kernel_core"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


def _lint(folder: Path) -> tuple[int, str]:
    """The exit code of import-linter, and the contracts that are broken."""
    done = subprocess.run(
        [sys.executable, "-c", _LINT, "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _file_of(module: str, folder: Path) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def test_contracts_hold_as_it_is(copied: Path) -> None:
    code, told = _lint(copied)
    assert code == 0, told


@pytest.mark.parametrize(("importer", "imported", "contract"), _PLANTED)
def test_import_across_the_boundary_breaks_its_contract(
    copied: Path, importer: str, imported: str, contract: str
) -> None:
    file = _file_of(importer, copied)
    assert _file_of(imported, copied).exists()
    before = file.read_text()
    try:
        file.write_text(f"{before}\nimport {imported}\n")
        code, told = _lint(copied)
    finally:
        file.write_text(before)
    assert code == 1
    assert f"{contract} BROKEN" in told
