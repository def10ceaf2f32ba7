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


def source_of(expression: str, *inputs: str) -> tuple[str, str]:
    """The kernels and the host code for an expression of `a`, `b` and so on."""
    asked = parse_problem(problem(expression, *inputs), id="test", suite="test")
    kernels, _, host = answer(asked).source.partition("class ModelNew")
    return kernels, host


def test_a_literal_size_is_read_from_a_shape_and_no_product_of_sizes_is_written() -> None:
    resized = "F.interpolate(a, size=(60, 80), mode='bilinear', align_corners=False)"
    kernels, host = source_of(f"torch.relu({resized})", "torch.randn(2, 3, 15, 35)")
    assert "cols % inner\n" in kernels and "cols // inner\n" in kernels and "H, W, inner" in kernels
    assert not any(number in kernels + host for number in ("4800", "14400", "0.25", "0.4375"))
    assert "out.shape[-1]" in host and "(*a.shape[:2], 60, 80)" in host


def test_sizes_of_a_literal_shape_are_not_multiplied() -> None:
    kernels, host = source_of(
        "torch.exp(a).reshape(5, 6, 4).transpose(1, 2).flatten(1)", "torch.randn(5, 24)"
    )
    assert "i % N2\n" in kernels and "i // N2 // M" in kernels
    assert "24" not in kernels and "120" not in host and "4 * 6" in host


def test_numbers_of_the_table_keep_their_expression() -> None:
    kernels, _ = source_of("F.interpolate(a, scale_factor=3, mode='bilinear')", "torch.randn(2, 3, 5, 7)")
    assert "* (1.0 / 3)" in kernels and "0.333" not in kernels
    kernels, _ = source_of("torch.linalg.vector_norm(a, ord=3, dim=1)", "torch.randn(4, 7)")
    assert "1.0 / 3" in kernels and "0.333" not in kernels
    kernels, host = source_of("F.rms_norm(a, (7,))", "torch.randn(4, 7)")
    assert "e-07" not in kernels and "torch.finfo(torch.float32).eps" in host


def test_a_constructor_and_a_plan_have_the_numbers_of_the_text() -> None:
    written = answer(parse_problem(problem("torch.relu(a) * 1e-8", "torch.randn(3, 4)"), id="t", suite="t"))
    assert "relu * 1e-08" in written.source or "* 1e-08" in written.source
    assert "__number__" not in written.source + written.thinking
