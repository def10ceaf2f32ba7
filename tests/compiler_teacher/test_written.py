"""Kernels of the compiler, rewritten: the judge finds them correct, and a changed one wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.compiler_teacher.capture import Captured
from kernel_core.compiler_teacher.written import Taught, written
from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate, Problem

PROBLEMS = Path(__file__).parent / "problems"
NAMES = ("broadcast", "rms_norm", "conv_chain")
CAPTURE = """
import json, sys
from kernel_core.compiler_teacher.pool import captured
from kernel_core.problems.load import load_file
found = dict(captured([load_file(file) for file in sys.argv[1:]], deadline_s=300.0))
print(json.dumps([found[position].model_dump() for position in sorted(found)]))
"""


@pytest.fixture(scope="module")
def taught() -> dict[str, tuple[Problem, Taught]]:
    """The three problems with what was written for them, captured in another process."""
    files = [str(PROBLEMS / f"{name}.py") for name in NAMES]
    command = [sys.executable, "-c", CAPTURE, *files]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    rows = json.loads(ran.stdout.splitlines()[-1])
    problems = [load_file(file) for file in files]
    return {
        name: (problem, written(problem, Captured.model_validate(row)))
        for name, problem, row in zip(NAMES, problems, rows, strict=True)
    }


def test_the_judge_finds_each_correct_and_a_changed_one_wrong(
    taught: dict[str, tuple[Problem, Taught]], quick_gym: Gym
) -> None:
    requests = []
    for problem, one in taught.values():
        for code in (one.kernel_code, changed(one.kernel_code)):
            requests.append(
                JudgeRequest(
                    problem=problem, candidate=Candidate.from_source(code), seed=1, timing=False, fast=True
                )
            )
    verdicts = [evaluation.verdict for evaluation in quick_gym.judge(requests)]
    assert verdicts == ["correct", "wrong"] * len(NAMES)


@pytest.mark.exploits
def test_each_compiles_for_a_gpu(taught: dict[str, tuple[Problem, Taught]]) -> None:
    requests = [
        JudgeRequest(problem=problem, candidate=Candidate.from_source(one.kernel_code), seed=1)
        for problem, one in taught.values()
    ]
    with open_gym(GymConfig(workers=1)) as gym:
        assert [evaluation.verdict for evaluation in gym.judge(requests)] == ["correct"] * len(NAMES)


def changed(code: str) -> str:
    """The first kernel stores to the output what is not its value."""
    start = code.index("tl.store(out_ptr")
    end = code.index(", mask=", start)
    return code[:end] + " + 3.0" + code[end:]


def test_the_text_has_nothing_of_the_compilers(taught: dict[str, tuple[Problem, Taught]]) -> None:
    for _, one in taught.values():
        for word in ("triton_helpers", "rindex", "RBLOCK", "eviction", "reinterpret_tensor", "tl.full([1"):
            assert word not in one.kernel_code


def test_sizes_are_arguments_and_parameters_keep_their_names(
    taught: dict[str, tuple[Problem, Taught]],
) -> None:
    _, norm = taught["rms_norm"]
    assert "self.weight" in norm.kernel_code
    assert "640" not in norm.kernel_code
    assert "reduces" in norm.thinking


def test_a_convolution_stays_with_torch_and_the_chain_is_one_kernel(
    taught: dict[str, tuple[Problem, Taught]],
) -> None:
    _, chain = taught["conv_chain"]
    assert "torch.nn.functional.conv2d(" in chain.kernel_code
    assert chain.kernel_code.count("@triton.jit") == 1
    assert "convolution" in chain.thinking
