"""Texts of answers say the same thing in the same way, and close to the problem's text."""

from __future__ import annotations

import pytest

from kernel_core.generator.answer import answer
from kernel_core.problems.source import parse_problem
from tests.generator.small_problems import ROWS, problem


def written(source: str) -> str:
    return answer(parse_problem(source, id="test", suite="test")).source


@pytest.mark.parametrize(
    "expression", ["2.5 * a + (1.5 + a)", "a * 2.5 + (a + 1.5)", "(0.5 - a) / (2.0 / a)", "b - a + b * 0.5"]
)
def test_numbers_stand_where_the_problem_has_them(expression):
    assert f"out = {expression}\n" in written(problem(expression, ROWS, ROWS))


@pytest.mark.parametrize(
    ("expression", "shape"),
    [("a.sum(dim=-1)", "a.shape[:-1]"), ("F.mse_loss(a, b)", "()"), ("torch.mv(a, b[0])", "a.shape[:-1]")],
)
def test_an_output_is_allocated_in_the_shape_that_is_returned(expression, shape):
    text = written(problem(expression, ROWS, ROWS))
    assert f"out = torch.empty({shape}, device" in text and text.endswith("return out\n")


def test_a_tensor_that_is_returned_in_two_shapes_is_stored_in_one_of_them():
    text = written(problem("(a.sum(dim=1), a.amax(dim=1).view(5, 1))", ROWS))
    assert ".view(" not in text and "return (out, out_2)" in text


def test_indices_have_the_same_name_in_each_loop_over_a_row():
    layer = "self.norm = nn.LayerNorm(9001)"
    text = written(problem("self.norm(a)", "torch.randn(2, 9001)", layers=layer))
    assert text.count("row * n_cols + cols") == 2 and "a_offsets" not in text


def test_mean_and_variance_of_a_long_row_take_one_pass():
    text = written(problem("F.layer_norm(a, (9001,))", "torch.randn(2, 9001)"))
    assert "2 passes" in text and text.count("for start in range") == 2
    text = written(problem("a.double().var(dim=1)", "torch.randn(2, 9001)"))
    assert "2 passes" in text  # the sum so far is float32


def test_a_kernel_is_written_once_for_names_of_any_length():
    layers = "self.conv = nn.Conv2d(16, 16, 3); self.convolution = nn.Conv2d(16, 16, 3)"
    text = written(problem("self.convolution(self.conv(a))", "torch.randn(2, 16, 9, 11)", layers=layers))
    assert text.count("def packed_weight_kernel") == 1 and text.count("packed_weight_kernel[") == 2


def test_a_value_that_is_shared_in_each_of_thirty_steps_is_walked_once():
    steps = "\n".join("        x = x * x + a" for _ in range(30))
    results = f"        x = a\n{steps}\n        return x.sum(dim=-1), x.amax(dim=-1)"
    source = problem("a.sum(dim=-1)", ROWS).replace("        return a.sum(dim=-1)", results)
    assert steps in source
    assert "tl.max(" in written(source)
