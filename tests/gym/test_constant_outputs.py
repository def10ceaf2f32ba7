"""A problem whose output is one number for all inputs is refused, and others are judged where it varies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel_core.records import Evaluation, NotJudged, Verdict

PROBLEM = """
class Model(nn.Module):
    def forward(self, x, y):
        return {result}

def get_inputs():
    return [torch.rand(7, 33), torch.rand(7, 33)]
"""
KERNEL = """
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, {result}, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
        return out
"""
JudgeText = Callable[..., Evaluation | NotJudged]


@pytest.mark.parametrize(
    ("reference", "result", "constant"),
    [("torch.isfinite(x)", "x - x == 0.0", "True"), ("(x + y) > 1e9", "x + y > 1e9", "False")],
)
def test_a_problem_with_a_constant_output_is_refused(
    judge_text: JudgeText, reference: str, result: str, constant: str
) -> None:
    outcome = judge_text(PROBLEM.format(result=reference), KERNEL.format(result=result))
    assert isinstance(outcome, NotJudged)
    assert f"is {constant} for all inputs tried" in outcome.reason


@pytest.mark.parametrize(
    ("result", "verdict"),
    [("x == y", Verdict.CORRECT), ("x > 1e9", Verdict.WRONG), ("x >= y", Verdict.WRONG)],
)
def test_equality_is_judged_on_numbers_that_are_equal_at_times(
    judge_text: JudgeText, result: str, verdict: Verdict
) -> None:
    """Two draws of `torch.rand` have no equal numbers."""
    evaluation = judge_text(PROBLEM.format(result="x == y"), KERNEL.format(result=result))
    assert isinstance(evaluation, Evaluation)
    assert evaluation.verdict is verdict, evaluation.feedback
