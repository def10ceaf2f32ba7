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
