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
    before: str = ""


_NEXT = "BLOCK=triton.next_power_of_2(width)"
_MISTAKES = (
    _Mistake(
        "no mask",
        'tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))',
        "tl.load(x_ptr + row * width + columns)",
    ),
    _Mistake("the block is no power of two", _NEXT, "BLOCK=width"),
    _Mistake("the block is no constexpr", "BLOCK: tl.constexpr", "BLOCK"),
    _Mistake("the maximum is not subtracted", "x - tl.max(x, axis=0)", "x"),
    _Mistake("programs are missing", "softmax[(rows,)]", "softmax[(rows // 2,)]"),
    _Mistake("the padding is zero", 'other=-float("inf")', "other=0.0"),
    _Mistake("the weight has another name", "self.weight", "self.scale"),
    _Mistake("half precision", "torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float16)"),
    _Mistake("no return", "        return y\n", ""),
    _Mistake("the input is overwritten", "y = torch.empty_like(x)", "y = x"),
    _Mistake(
        "torch does the work", "        return y\n", "        return torch.softmax(x, dim=-1) * self.weight\n"
    ),
    _Mistake(
        "a number is read",
        "rows, width = x.shape\n",
        "rows, width = x.shape\n        x = x - x.max().item()\n",
    ),
    _Mistake("memory of the host", "torch.empty_like(x)", "torch.empty(x.shape)"),
    _Mistake(
        "a removed module",
        "import triton.language as tl\n",
        "import triton.language as tl\nimport triton.ops\n",
    ),
    _Mistake("loop never ends", "    e = tl.exp", "    while width > 0:\n        x += 0.0\n    e = tl.exp"),
    _Mistake("args", "def __init__(self, cols):", "def __init__(self):\n        cols = 75"),
    _Mistake("a torch function in the kernel", "tl.exp(x - ", "torch.exp(x - "),
    _Mistake("a name that tl lacks", "tl.exp(x - ", "tl.expm(x - "),
    _Mistake("race", "tl.store(y_ptr + row * width", "tl.store(y_ptr + (row // 2) * width"),
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
    for one, evaluation in zip(_MISTAKES, wrong, strict=True):
        print(f"| {one.name} | {one.before} | {evaluation.feedback} |")


if __name__ == "__main__":
    main()
