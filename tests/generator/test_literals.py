"""Numbers in answers keep the expression of the problem's text: no answer has a number that was computed."""

from __future__ import annotations

import pytest

from kernel_core.generator.answer import answer
from kernel_core.problems.source import parse_problem
from tests.generator.small_problems import problem

TEXT = """\
import math
from math import exp

import torch
import torch.nn as nn

ALPHA = 0.25


def weighted(x, gamma=0.7):
    return x * (1 - gamma)


class Model(nn.Module):
    def __init__(self, beta, step, width):
        super().__init__()
        self.beta, self.step, self.width = beta, step, width

    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn(5, 7)]


def get_init_inputs():
    return [0.9, 10, 6]
"""


@pytest.mark.parametrize(
    ("expression", "in_kernel", "on_host"),
    [
        ("x / (1 - self.beta**self.step)", "x / one_minus_beta_step", "1 - self.beta ** self.step"),
        ("x * self.width ** -0.5", "x * width", "self.width ** -0.5"),
        ("x * 2**self.beta", "x * beta", "2 ** self.beta"),
        ("x * -abs(self.beta)", "x * beta", "-abs(self.beta)"),
        (
            "x * math.tanh(math.pow(self.beta, self.step))",
            "x * step",
            "math.tanh(math.pow(self.beta, self.step))",
        ),
        ("x * exp(self.beta)", "x * beta", "math.exp(self.beta)"),
        ("x * (1 / math.sqrt(64))", "x * scale", "1 / math.sqrt(64)"),
        ("x * (2 * math.pi)", "x * scale", "2 * math.pi"),
        ("x * (1 - 0.8)", "x * (1 - 0.8)", ""),
        ("x.abs() ** (1 / 3)", ", 1 / 3)", ""),
        ("x * (1 - ALPHA)", "x * (1 - 0.25)", ""),
        ("weighted(x)", "x * (1 - 0.7)", ""),
        ("x.clamp(min=-0.3)", "tl.maximum(x, -0.3)", ""),
        ("x.abs() ** -0.5", "tl.rsqrt(", ""),
    ],
)
def test_a_scalar_is_the_expression_of_the_text(expression: str, in_kernel: str, on_host: str) -> None:
    source = TEXT.replace("{expression}", expression)
    kernel, _, host = answer(parse_problem(source, id="test", suite="test")).source.partition("class Mod")
    assert in_kernel in kernel, kernel
    assert on_host in host, host


def test_a_constructor_and_a_plan_have_the_numbers_of_the_text() -> None:
    written = answer(parse_problem(problem("torch.relu(a) * 1e-8", "torch.randn(3, 4)"), id="t", suite="t"))
    assert "relu * 1e-08" in written.source or "* 1e-08" in written.source
    assert "__number__" not in written.source + written.thinking
