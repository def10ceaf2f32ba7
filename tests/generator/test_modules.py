"""The generator's kernels for problems of the suite `modules`, one of each family."""

from __future__ import annotations

import pytest

from kernel_core.generator.graded import answered_problems
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.modules.generate import FAMILIES, RESERVED, generate_modules
from kernel_core.records import Candidate

FAST = ("softmax_dim", "conv_elementwise")
"""Families in the fast suite, which are judged fast; the others are exhaustive."""


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.exhaustive) for name in FAMILIES],
)
def test_the_kernel_of_a_problem_is_judged_correct(family: str, quick_gym: Gym) -> None:
    split = "held_out" if family in RESERVED else "train"
    problems = list(generate_modules(split, 1, 0, (family,)))
    (made,) = answered_problems(problems)
    kernel = made.kernels[0]
    assert made.problem == problems[0] and kernel.grade == "tuned"
    request = JudgeRequest(problem=made.problem, candidate=Candidate.from_source(kernel.source))
    (evaluation,) = quick_gym.judge([request])
    assert evaluation.verdict == "correct", (evaluation.feedback, made.problem.source, kernel.source)


def test_a_mistake_is_an_edit_of_the_kernel() -> None:
    problems = list(generate_modules("train", 20, 0))
    pairs = [made.kernels for made in answered_problems(problems) if len(made.kernels) == 2]
    assert len(pairs) > 10
    for kernel, mistake in pairs:
        assert mistake.grade == "mistake" and mistake.fault
        assert mistake.source != kernel.source and mistake.thinking == kernel.thinking
