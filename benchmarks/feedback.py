"""Claim: a person can act on what the judge says of ten typical mistakes.

    python benchmarks/feedback.py            # Markdown: each mistake, the feedback before and now

`_BEFORE` is what this script printed at commit 01004ed. The judge is the CPU's.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate

_PROBLEM = """# cpu: ROWS=7, COLS=75
# input x: any
import torch
import torch.nn as nn

ROWS = 4096
COLS = 4096


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.weight


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
"""
_KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, weight_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0) * tl.load(weight_ptr + columns, mask=mask)
    tl.store(y_ptr + row * width + columns, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols) + 0.5)

    def forward(self, x):
        rows, width = x.shape
        y = torch.empty_like(x)
        softmax[(rows,)](x, self.weight, y, width, BLOCK=triton.next_power_of_2(width))
        return y
"""


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A change of the right kernel that makes it wrong."""

    name: str
    right: str
    wrong: str


_LOAD = 'tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))'
_RETURN = "        return y\n"
_MISTAKES = (
    _Mistake("a load has no mask", _LOAD, "tl.load(x_ptr + row * width + columns)"),
    _Mistake("the block is no power of two", "BLOCK=triton.next_power_of_2(width)", "BLOCK=width"),
    _Mistake("a function of torch's in a kernel", "tl.exp(x - ", "torch.exp(x - "),
    _Mistake("the maximum is not subtracted", "x - tl.max(x, axis=0)", "x"),
    _Mistake("half of the programs are missing", "softmax[(rows,)]", "softmax[(rows // 2,)]"),
    _Mistake("a factor too much", "y = e / tl.sum", "y = 2 * e / tl.sum"),
    _Mistake("nothing is returned", _RETURN, ""),
    _Mistake("the input is overwritten", "y = torch.empty_like(x)", "y = x"),
    _Mistake("torch does the work", _RETURN, "        return torch.softmax(x, dim=-1) * self.weight\n"),
    _Mistake(
        "two programs write one row", "tl.store(y_ptr + row * width", "tl.store(y_ptr + row // 2 * width"
    ),
)
_BEFORE = (
    "crashed: line 12: OutOfBounds: out-of-bounds load: an unmasked address lies outside all tensors",
    "did not compile: line 10: arange's range must be a power of 2",
    "did not compile: line 13: name 'torch' is not defined in the kernel",
    "wrong: output at [3, 0] is nan, expected 5.232e-05; 14 % of values differ (far_negative inputs)",
    "wrong: output at [6, 45] is -31.91, expected 0.01814; 57 % of values differ (far_negative inputs)",
    "wrong: output at [3, 59] is 1.288, expected 0.6441; 86 % of values differ (far_negative inputs)",
    "wrong: output is a NoneType, expected a tensor (far_negative inputs)",
    "wrong: input 0 was changed in place (far_negative inputs)",
    "not accepted: the outputs do not depend on its kernels",
    "crashed: line 15: Race: it stores over what another program of the same launch loads or "
    "stores, in no order",
)


def main() -> None:
    """Judge all, and print them side by side."""
    problem = parse_problem(_PROBLEM, id="feedback/softmax", suite="feedback")
    for one in _MISTAKES:
        assert one.right in _KERNEL, one.name
    kernels = [_KERNEL.replace(one.right, one.wrong) for one in _MISTAKES]
    requests = [
        JudgeRequest(problem=problem, candidate=Candidate.from_source(text), seed=1)
        for text in (_KERNEL, *kernels)
    ]
    with open_gym(GymConfig(workers=2)) as gym:
        right, *wrong = gym.judge(requests)
    assert right.correct, right.feedback
    print("| mistake | before | now |\n|---|---|---|")
    for one, before, evaluation in zip(_MISTAKES, _BEFORE, wrong, strict=True):
        print(f"| {one.name} | {before} | {evaluation.feedback} |")


if __name__ == "__main__":
    main()
