"""`dojo teach` for a module of the user's and for a folder."""

from __future__ import annotations

import json

import pytest

from flows.cli import run
from tests.generator.small_problems import problem


def test_a_problem_or_a_folder_is_needed(capsys):
    assert run(["teach"]) == 2
    assert "--problem" in capsys.readouterr().err


def test_a_module_without_tensors_is_refused_by_name(tmp_path, capsys):
    file = tmp_path / "nothing.py"
    file.write_text(problem("3", "torch.randn(4)"))
    assert run(["teach", "--problem", str(file), "--out", str(tmp_path / "out.py")]) == 2
    assert "no kernel can be written" in capsys.readouterr().err


def test_a_folder_is_counted_without_a_judge(tmp_path, capsys):
    (tmp_path / "relu.py").write_text(problem("torch.relu(a)", "torch.randn(4, 33)"))
    (tmp_path / "number.py").write_text(problem("3", "torch.randn(4)"))
    assert run(["teach", "--coverage", str(tmp_path), "--write-only", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert counts["written"] == 1 and sum(counts.values()) == 2


@pytest.mark.exhaustive
def test_an_answer_is_written_and_judged(tmp_path, capsys):
    file = tmp_path / "silu.py"
    file.write_text(problem("F.silu(a) * b", "torch.randn(40, 33)", "torch.randn(33)"))
    out = tmp_path / "kernel.py"
    assert run(["teach", "--problem", str(file), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["verdict"] == "correct"
    assert "@triton.jit" in out.read_text()
