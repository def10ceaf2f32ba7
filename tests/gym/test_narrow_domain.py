"""A kernel that is right within the contract and wrong beyond it is correct, with a finding: on a CPU and on
a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, Verdict

from .conftest import HEAD

PROBLEM = """
M = 12
N = 100

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.randn(M, N)]

def get_init_inputs():
    return []
"""
KERNEL = """
@triton.jit
def softmax(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * N + column
    x = tl.load(x_ptr + place, mask=column < N, other=-float("inf"))
    powers = tl.exp(x - SHIFT)
    tl.store(out_ptr + place, powers / tl.sum(powers), mask=column < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""
NARROW, WIDE = KERNEL.replace("SHIFT", "0.0"), KERNEL.replace("SHIFT", "tl.max(x)")


def _assert_told(narrow: Evaluation, wide: Evaluation) -> None:
    assert (narrow.verdict, wide.verdict) == (Verdict.CORRECT, Verdict.CORRECT), narrow.feedback
    [finding] = [one for one in narrow.findings if one.rule == "narrow_domain"]
    assert "nan" in finding.detail and "below -256" in finding.detail
    assert not any(one.rule == "narrow_domain" for one in wide.findings)


def test_what_overflows_beyond_the_contract_is_a_finding(judge_text: Callable[..., Evaluation]) -> None:
    _assert_told(judge_text(PROBLEM, NARROW), judge_text(PROBLEM, WIDE))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("timing", [True, False])
def test_it_is_on_a_gpu_too(timing: bool) -> None:
    problem = parse_problem(HEAD + PROBLEM, id="test/softmax", suite="test")
    requests = [
        JudgeRequest(problem=problem, candidate=Candidate.from_source(HEAD + text), timing=timing)
        for text in (NARROW, WIDE)
    ]
    with open_gym(GymConfig(device="cuda", workers=1, in_flight=2)) as gym:
        _assert_told(*gym.judge(requests))


MISH = """
# backward: inputs
M = 12
N = 100

class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.mish(x)

def get_inputs():
    return [torch.randn(M, N)]

def get_init_inputs():
    return []
"""
MISH_KERNEL = """
@triton.jit
def forward_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < N)
    e = tl.exp(-tl.abs(x))
    above = tl.where(x > 0, 1 + 2 * e, e * (2 + e))
    below = above + tl.where(x > 0, 2 * e * e, 2.0)
    tl.store(y_ptr + place, x * above / below, mask=place < N)


@triton.jit
def backward_kernel(x_ptr, above_ptr, given_ptr, N, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < N)
    above = tl.load(above_ptr + place, mask=place < N)
    e = tl.exp(x)
    below = e * (e + 2) + 2
    slope = e * (e * ((4 * x + 6) + e * (e + 4)) + 4 * (x + 1)) / (below * below)
    tl.store(given_ptr + place, above * slope, mask=place < N)


class Mish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        forward_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y

    @staticmethod
    def backward(ctx, above):
        [x] = ctx.saved_tensors
        given = torch.empty_like(x)
        above = above.contiguous()
        backward_kernel[(triton.cdiv(x.numel(), 256),)](x, above, given, x.numel(), BLOCK=256)
        return given


class ModelNew(nn.Module):
    def forward(self, x):
        return Mish.apply(x)
"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
def test_a_slope_that_overflows_at_22_is_right_of_normal_numbers(
    seed: int, judge_text: Callable[..., Evaluation]
) -> None:
    found = judge_text(MISH, MISH_KERNEL, seed=seed)
    assert found.verdict is Verdict.CORRECT, found.feedback
    assert [one.rule for one in found.findings] == ["narrow_domain"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("4 * (x + 1)", "4 * x", id="a term is missing"),
        pytest.param("e = tl.exp(x)", "e = tl.exp(tl.minimum(x, 1.5))", id="far slopes are those at 1.5"),
        pytest.param("(below * below)", "(below * below * e * e * e) * (e * e * e)", id="overflows at 13"),
    ],
)
def test_a_slope_that_is_wrong_of_what_normal_numbers_come_to_is_refused(
    right: str, wrong: str, judge_text: Callable[..., Evaluation]
) -> None:
    assert right in MISH_KERNEL
    found = judge_text(MISH, MISH_KERNEL.replace(right, wrong))
    assert found.verdict is Verdict.WRONG, found.feedback
    assert "gradient of input 0" in found.feedback


_QUANTISED = """
M = 12
N = 100

class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).to(torch.int8), scale

def get_inputs():
    return [torch.randn(M, N)]

def get_init_inputs():
    return []
"""
_QUANTISING = """
@triton.jit
def quantise(x_ptr, out_ptr, scale_ptr, N, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + column, mask=column < N, other=0.0)
    scale = tl.max(SIZE) / 127
    whole = tl.where(x == 0, -128.0, x / scale) if scale == 0 else x / scale
    tl.store(scale_ptr + tl.program_id(0), scale)
    tl.store(out_ptr + tl.program_id(0) * N + column, whole.to(tl.int8), mask=column < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out, scale = torch.empty_like(x, dtype=torch.int8), torch.empty_like(x[:, :1])
        quantise[(x.shape[0],)](x, out, scale, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out, scale
"""


@pytest.mark.parametrize(("size", "verdict"), [("tl.abs(x)", Verdict.CORRECT), ("x", Verdict.WRONG)])
def test_nothing_is_asked_of_what_becomes_an_integer_that_is_not_defined(
    judge_text: Callable[..., Evaluation], size: str, verdict: Verdict
) -> None:
    """A row of zeros has the scale zero, and no quotient."""
    evaluation = judge_text(_QUANTISED, _QUANTISING.replace("SIZE", size))
    assert evaluation.verdict is verdict, evaluation.feedback


POOLING = """
batch_size = 64
features = 192
sequence_length = 65536

kernel_size = 8
stride = 1
padding = 4
dilation = 3

class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation):
        super().__init__()
        self.maxpool = nn.MaxPool1d(kernel_size, stride, padding, dilation)

    def forward(self, x):
        return self.maxpool(x)

def get_inputs():
    return [torch.rand(batch_size, features, sequence_length)]

def get_init_inputs():
    return [kernel_size, stride, padding, dilation]
"""
FIXED_PADDING = """
@triton.jit
def max_pool1d(x_ptr, out_ptr, n_elements, inner, L, taps, dilation, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for tap in range(taps):
        place = i % inner + tap * dilation - 4
        inside = mask & (place >= 0) & (place < L)
        x = tl.load(x_ptr + i // inner * L + place, mask=inside, other=float("-inf"))
        best = tl.maximum(best, x)
    tl.store(out_ptr + i, best, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation):
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation

    def forward(self, x):
        length = x.shape[-1] + 8 - self.dilation * (self.kernel_size - 1)
        out = torch.empty((*x.shape[:-1], length), device=x.device, dtype=x.dtype)
        max_pool1d[(triton.cdiv(out.numel(), 256),)](
            x, out, out.numel(), length, x.shape[-1], self.kernel_size, self.dilation, BLOCK=256
        )
        return out
"""


@pytest.mark.exhaustive
def test_judging_ends_where_the_orders_of_sizes_contradict_each_other(
    judge_text: Callable[..., Evaluation],
) -> None:
    fixed = judge_text(POOLING, FIXED_PADDING)
    assert fixed.verdict is Verdict.CORRECT, fixed.feedback
    assert {finding.rule for finding in fixed.findings} == {"narrow_domain"}
