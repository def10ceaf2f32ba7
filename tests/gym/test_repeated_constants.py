"""Constants that a Model reads and a kernel's module repeats change together with the sizes."""

from __future__ import annotations

import pytest

from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.oracle.repeated_constants import at_sizes, read_by_classes
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Verdict

PROBLEM = """\
# cpu: ROWS=5, DIM=24
import torch
import torch.nn as nn

ROWS = 4096
DIM = 2048
EPS = 1e-5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.weight


def get_inputs():
    return [torch.randn(ROWS, DIM)]


def get_init_inputs():
    return []
"""
KERNEL = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl

DIM = 2048
EPS = 1e-5
ROWS = 16


@triton.jit
def norm_kernel(x_ptr, weight_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    start = tl.program_id(0).to(tl.int64) * n_cols
    x = tl.load(x_ptr + start + cols, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)
    out = x * tl.rsqrt(tl.sum(x * x) / n_cols + eps) * weight
    tl.store(out_ptr + start + cols, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        out = torch.empty_like(x)
        block = triton.next_power_of_2(DIM)
        norm_kernel[(x.shape[0],)](x, self.weight, out, DIM, EPS, BLOCK=block)
        return out
"""


def problem():
    return parse_problem(PROBLEM, id="test/globals", suite="test")


def test_names_that_a_class_reads_from_its_module():
    assert {"DIM", "EPS", "torch", "nn"} <= read_by_classes(PROBLEM)
    assert not {"ROWS", "x", "self"} & read_by_classes(PROBLEM)


def test_only_constants_that_are_repeated_with_their_value_change():
    changed = at_sizes(KERNEL, problem(), {"DIM": 24, "ROWS": 5})
    assert changed == KERNEL.replace("DIM = 2048", "DIM = 24")
    other = KERNEL.replace("DIM = 2048", "DIM = 1024")
    assert at_sizes(other, problem(), {"DIM": 24}) == other
    assert at_sizes("def (", problem(), {"DIM": 24}) == "def ("


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("EPS = 1e-5", "EPS = 1e-5", Verdict.CORRECT),
        ("/ n_cols + eps", "/ (n_cols + 1) + eps", Verdict.WRONG),
        ("DIM = 2048", "DIM = 1024", Verdict.CRASHED),
    ],
)
def test_a_kernel_with_the_problems_constants_is_judged_at_small_sizes(gym, old, new, verdict):
    candidate = Candidate.from_source(KERNEL.replace(old, new))
    [evaluation] = gym.judge([JudgeRequest(problem=problem(), candidate=candidate, seed=1)])
    assert evaluation.verdict is verdict, evaluation.feedback
