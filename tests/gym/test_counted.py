"""Work that is easily overlooked is counted: these kernels are right, and may not be called fast."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kernel_core.gym.pool import PooledGym
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.traffic import GPUS, launch_time_ms
from kernel_core.gym.work import OperatorCounter, Work
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate

_FILES = sorted((Path(__file__).parent / "counted").glob("*.py"))
_PROBLEMS = Path(__file__).parents[1] / "exploits" / "problems"


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_what_was_overlooked_once_is_counted(file: Path, gym: PooledGym) -> None:
    text = file.read_text()
    header = dict(re.findall(r"^# (problem|precision|at most): (.*)$", text, re.MULTILINE))
    problem = load_file(_PROBLEMS / f"{header['problem']}.py")
    if "precision" in header:
        problem = problem.model_copy(update={"precision": header["precision"]})
    request = JudgeRequest(
        problem=problem, candidate=Candidate.from_source(text), sizes=problem.cpu_constants, seed=11
    )
    [evaluation] = gym.judge([request])
    assert evaluation.correct, evaluation.feedback
    assert evaluation.predicted_speedup is not None
    assert evaluation.predicted_speedup <= float(header["at most"])


def test_an_operator_that_returns_nothing_moves_what_it_writes() -> None:
    tensors = [torch.zeros(1000), torch.zeros(50)]
    with OperatorCounter() as counter:
        torch._foreach_exp_(tensors)
    [work] = counter.works
    assert work.bytes_distinct >= 2 * 4 * 1050


def test_a_complex_product_is_four() -> None:
    with OperatorCounter() as counter:
        _ = torch.ones(8, 8, dtype=torch.complex64) @ torch.ones(8, 8, dtype=torch.complex64)
        _ = torch.ones(8, 8) @ torch.ones(8, 8)
    complex_work, real_work = (work for work in counter.works if work.dot_flops)
    assert complex_work.dot_flops == 4 * real_work.dot_flops


@pytest.mark.parametrize("kind", ["fp64", "float64", "int64", "complex64", "nobody's"])
def test_products_of_any_other_type_are_no_faster_than_float32(kind: str) -> None:
    def time_ms(dtype: str) -> float:
        work = Work("dot", True, 0, 0, 0, dot_flops=10**13, dot_dtype=dtype)
        return launch_time_ms(work, GPUS["H200"])

    assert time_ms(kind) >= time_ms("float32") > time_ms("fp32") > time_ms("bfloat16")
