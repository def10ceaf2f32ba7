"""The trust boundary is held by import-linter: an import across it, planted in a copy, breaks a contract."""

from __future__ import annotations

import os
import re
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
    (
        "kernel_core.gym.numerics.compare",
        "kernel_core.gym.oracle.trial",
        "The judge's rooms, from processes down to the contract",
    ),
    (
        "kernel_core.gym.untrusted.compile.compile_job",
        "kernel_core.gym.untrusted.candidate.runner",
        "Candidate and replay are apart, above compilers and the interpreter",
    ),
    (
        "kernel_core.gym.pool.judge_host",
        "kernel_core.gym.processes.fork_root",
        "The pool knows neither judge nor candidate, only how to reach a judge",
    ),
]
_JOBS = (
    "kernel_core.gym.untrusted.candidate.runner",
    "kernel_core.gym.untrusted.candidate.dry_run",
    "kernel_core.gym.untrusted.replay.replay",
    "kernel_core.gym.untrusted.compile.compile_job",
    "kernel_core.gym.untrusted.compile.nvcc_job",
)
_JUDGE = ("judge", "timing", "prediction", "workers", "verdict", "oracle", "pool", "processes")


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


@pytest.fixture(scope="module")
def broken(copied: Path) -> str:
    """The report of import-linter on all planted imports together: each run reads all files anew."""
    before = {file: file.read_text() for file in {_file_of(importer, copied) for importer, _, _ in _PLANTED}}
    try:
        for importer, imported, _ in _PLANTED:
            assert _file_of(imported, copied).exists()
            with _file_of(importer, copied).open("a") as file:
                file.write(f"\nimport {imported}\n")
        code, report = _lint(copied)
    finally:
        for file, text in before.items():
            file.write_text(text)
    assert code == 1
    return report


@pytest.mark.parametrize(("importer", "imported", "contract"), _PLANTED)
def test_import_across_the_boundary_breaks_its_contract(
    broken: str, importer: str, imported: str, contract: str
) -> None:
    assert f"{contract} BROKEN" in broken
    [section] = re.findall(rf"^{re.escape(contract)}\n-+\n(.*?)(?=^[^\n]+\n-{{9,}}$|\Z)", broken, re.M | re.S)
    assert f"- {importer} -> {imported} (" in " ".join(section.split())


def test_what_runs_in_the_sandbox_loads_nothing_of_the_judge() -> None:
    script = f"import sys, {', '.join(_JOBS)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    loaded = [name.split(".") for name in done.stdout.split() if name.startswith("kernel_core.gym.")]
    rooms = {parts[2] for parts in loaded}
    assert "channel" in rooms
    assert not rooms & set(_JUDGE)
