"""Words of a verdict that name the remedy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.not_python import not_python
from kernel_core.gym.verdict.feedback import describe
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, Verdict

_PROBLEM = """
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return []
"""


@pytest.mark.parametrize(
    "answer",
    [
        "Here is the kernel.\n\n```python\nimport triton\n```\n",
        "~~~\nimport triton\n~~~\nIt adds two vectors.",
        "<KERNEL>\nimport triton\n</KERNEL>",
        "1. The grid:\n\n   ```py\n   import triton\n   ```",
    ],
)
def test_an_answer_with_a_fence_is_told_apart_from_bad_python(answer: str) -> None:
    problem = parse_problem(_PROBLEM, id="test/words", suite="test")
    judged = not_python(JudgeRequest(problem=problem, candidate=Candidate.from_source(answer)), "cpu")
    assert judged is not None
    assert judged.verdict is Verdict.MALFORMED
    assert "give only the Python inside the fence" in judged.feedback


def test_bad_python_without_a_fence_has_no_word_on_one() -> None:
    problem = parse_problem(_PROBLEM, id="test/words", suite="test")
    judged = not_python(JudgeRequest(problem=problem, candidate=Candidate.from_source("def f(:")), "cpu")
    assert judged is not None
    assert "fence" not in judged.feedback


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ("tl has no attribute 'libdevice'", "from triton.language.extra import libdevice"),
        ("module 'triton.language' has no attribute 'tanh'", "from triton.language.extra import libdevice"),
        ("math has no attribute 'pow'", "from triton.language.extra import libdevice"),
        ("ModuleNotFoundError: No module named 'triton.ops.matmul'", "it was removed in Triton 3"),
    ],
)
def test_a_removed_name_has_its_new_one(fault: str, remedy: str) -> None:
    assert remedy in describe(Verdict.NOT_COMPILED, fault, line=11)


_COPY = """
class Model(nn.Module):
    def forward(self, x):
        return x * 2

ROWS = 4096

def get_inputs():
    return [torch.rand(ROWS, 64)]
"""
_KERNEL = """
@triton.jit
def double(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * 2)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(ROWS,)](x, out, BLOCK=64)
        return out
"""


def test_a_candidate_that_repeats_an_own_size_is_told_the_size_of_the_run(
    judge_text: Callable[..., Evaluation],
) -> None:
    baked = judge_text(_COPY, _KERNEL.replace("ROWS", "4096"), ROWS=60)
    assert baked.verdict is Verdict.CRASHED
    assert "judged at ROWS = 60 in place of 4096" in baked.feedback
    wrong = judge_text(_COPY, _KERNEL.replace("ROWS", "x.shape[0]").replace("* 2)", "* 3)"), ROWS=60)
    assert wrong.verdict is Verdict.WRONG
    assert "judged at" not in wrong.feedback
