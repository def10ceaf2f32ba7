"""Work that is easily overlooked is counted: these kernels are right, and may not be called fast."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from exploit_files import PROBLEMS

from kernel_core.gym.channel.gpu_specs import GPUS
from kernel_core.gym.channel.work import OperatorCounter, Work
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.prediction.roofline import launch_time_ms
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate

_FILES = sorted((Path(__file__).parent / "counted").glob("*.py"))
_HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
_HALF = (
    _HEAD
    + """
class Model(nn.Module):
    def forward(self, x):
        return x * 2.5

B, N = 8, 96

def get_inputs():
    return [torch.randn(B, N, dtype=torch.bfloat16)]

def get_init_inputs():
    return []
"""
)
_DOUBLED = (
    _HEAD
    + """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + i, x * 2.5, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
        return out
"""
)
_SAMPLED = ("tf32x3", "unlisted_addbmm")
"""The fast suite judges a ninth of them; `-m exhaustive` judges the others."""


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[] if file.stem in _SAMPLED else pytest.mark.exhaustive)
        for file in _FILES
    ],
)
def test_what_was_overlooked_once_is_counted(file: Path, gym: PooledGym) -> None:
    text = file.read_text()
    header = dict(re.findall(r"^# (problem|precision|at most): (.*)$", text, re.MULTILINE))
    problem = PROBLEMS[header["problem"]]
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
    complex_work, real_work = (work.operations for work in counter.works if "float" not in work.operations)
    assert complex_work["complex64"] == 4 * real_work["float32"]


@pytest.mark.parametrize("kind", ["fp64", "float64", "int64", "complex64", "nobody's"])
def test_products_of_any_other_type_are_no_faster_than_float32(kind: str) -> None:
    def time_ms(dtype: str) -> float:
        work = Work("dot", True, 0, 0, {dtype: 10**13})
        return launch_time_ms(work, GPUS["H200"])

    assert time_ms(kind) >= time_ms("float32") > time_ms("fp32") > time_ms("bfloat16")


def _works_of(function: Callable[[], object]) -> list[Work]:
    with OperatorCounter() as counter:
        function()
    return counter.works


def test_a_product_in_place_takes_as_many_operations_as_any_other() -> None:
    square, sums = torch.ones(8, 8), torch.ones(8, 8)
    works = [
        *_works_of(lambda: torch.addmm(sums, square, square)),
        *_works_of(lambda: sums.addmm_(square, square)),
    ]
    assert [work.operations for work in works] == [{"float32": 2 * 8**3}] * 2


@pytest.mark.parametrize(
    "multiply",
    [
        lambda: torch.addbmm(torch.zeros(8, 8), _BATCH, _BATCH),
        lambda: torch.cdist(_BATCH, _BATCH),
        lambda: torch.ops.aten._trilinear(_BATCH, _BATCH, _BATCH, [], [], [], [1]),
        lambda: torch.ops.aten.slow_conv_dilated2d(_BATCH[None], torch.ones(2, 1, 3, 3), [3, 3]),
        lambda: torch.ops.aten._foreach_mm([_BATCH[0]], [_BATCH[0]]),
        lambda: torch.matrix_exp(_BATCH),
    ],
)
def test_the_work_of_a_product_without_a_formula_is_unknown(multiply: Callable[[], object]) -> None:
    assert any(work.is_unknown for work in _works_of(multiply))


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.zeros(3, 3).normal_(),
        lambda: torch.softmax(_BATCH.mul_(2).add(1).clamp(0, 1), -1).cumsum(0),
        lambda: torch.nn.functional.gelu(_BATCH) * torch.arange(8).eq(3),
        lambda: torch._foreach_exp_([_BATCH]),
        lambda: torch.nn.functional.max_pool2d(_BATCH[None], 2),
        lambda: torch.nn.functional.layer_norm(torch.cat([_BATCH, _BATCH]).roll(1), (8,)),
        lambda: _BATCH.gather(0, torch.zeros(1, 8, 8, dtype=torch.int64)).var(-1).sort(),
        lambda: torch.nn.functional.batch_norm(_BATCH[None], None, None, training=True),
        lambda: torch.nn.functional.cross_entropy(_BATCH[0], torch.zeros(8, dtype=torch.int64)),
        lambda: torch.nn.functional.pad(_BATCH, (1, 1)).permute(2, 0, 1).contiguous().to(torch.float16),
        lambda: torch.nn.functional.interpolate(_BATCH[None], scale_factor=2, mode="bilinear"),
    ],
)
def test_the_work_of_light_operators_is_known(compute: Callable[[], object]) -> None:
    assert not [work.name for work in _works_of(compute) if work.is_unknown]


_BATCH = torch.ones(1, 8, 8)


def test_casts_inside_a_kernel_are_no_operators(gym: PooledGym) -> None:
    problem = parse_problem(_HALF, id="half", suite="test", family="half")
    [evaluation] = gym.judge(
        [JudgeRequest(problem=problem, candidate=Candidate.from_source(_DOUBLED), seed=1)]
    )
    assert evaluation.correct, evaluation.feedback
    assert evaluation.traffic is not None and evaluation.traffic.num_launches == 1
    assert evaluation.traffic.own_share == 1.0
