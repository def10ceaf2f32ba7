"""A candidate with a known verdict: it tells a sick judge from a candidate that kills judges."""

from __future__ import annotations

from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate

_PROBLEM = """
import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 333


class Model(nn.Module):
    def forward(self, x, y):
        return torch.exp(x) * y + x


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.exp(x) * y + x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        combine[(triton.cdiv(x.numel(), 4096),)](x, y, out, x.numel(), BLOCK=4096)
        return out
"""


def known_request() -> JudgeRequest:
    """A kernel that every healthy judge finds correct."""
    problem = parse_problem(_PROBLEM, id="probe/combine", suite="probe")
    return JudgeRequest(problem=problem, candidate=Candidate.from_source(_KERNEL), sizes={})
