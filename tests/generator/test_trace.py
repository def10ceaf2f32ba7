"""Traces of references: what a policy reads beside the text."""

from __future__ import annotations

import textwrap

import pytest

from kernel_core.config import ProblemsConfig
from kernel_core.generator.trace import MAX_LINES, trace
from kernel_core.problems.load import load_problems
from kernel_core.problems.source import parse_problem


def traced(forward: str, init: str = "pass", inputs: str = "torch.randn(4, 8)") -> list[str]:
    """Lines of the trace of a module with these statements."""
    source = f"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{textwrap.indent(textwrap.dedent(init).strip(), " " * 8)}

    def forward(self, x):
{textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
    return trace(parse_problem(source, id="trace", suite="test", family="")).splitlines()


def test_each_call_is_a_line_with_its_shape() -> None:
    lines = traced("return torch.cat([x[:, :2], x.float()], dim=1) > 0.5")
    assert lines == [
        "x: 4x8",
        "v1 = x[:, :2]  # 4x2",
        "v2 = cat([v1, x], dim=1)  # 4x10",
        "v3 = v2 > 0.5  # 4x10 bool",
        "return v3",
    ]


def test_a_layer_is_called_by_its_path_and_a_weight_has_its_shape() -> None:
    init = """
        self.net = nn.Sequential(nn.Linear(8, 3), nn.LayerNorm(3))
        self.scale = nn.Parameter(torch.ones(3))
    """
    assert traced("return self.net(x) * self.scale", init) == [
        "x: 4x8",
        "v1 = self.net[0](x)  # linear 4x3",
        "self.net[1].weight: 3",
        "self.net[1].bias: 3",
        "v2 = layer_norm(v1, [3], weight=self.net[1].weight, bias=self.net[1].bias, eps=1e-05)  # 4x3",
        "self.scale: 3",
        "v3 = v2 * self.scale  # 4x3",
        "return v3",
    ]


@pytest.mark.parametrize(
    ("call", "formula"),
    [
        ("F.hardsigmoid(x)", "clamp(clamp(x + 3, 0), None, 6) / 6"),
        ("F.silu(x)", "x * sigmoid(x)"),
        ("torch.nansum(x, dim=1)", "sum(where(isnan(x), 0, x), [1])"),
        ("F.tanhshrink(x)", "x - tanh(x)"),
    ],
)
def test_a_decomposed_call_has_its_formula(call: str, formula: str) -> None:
    assert f"  = {formula}" in traced(f"return {call}")


def test_a_result_that_is_used_twice_has_a_letter() -> None:
    formula = traced("return F.rms_norm(x, (8,), eps=0.1)")[2]
    assert formula.count("mean") == 1 and formula.startswith("  = a = ")


def test_results_have_the_order_of_forward() -> None:
    assert traced("a, b = x.chunk(2, dim=1)\nreturn b, [a]")[1:] == [
        "v1, v2 = chunk(x, 2, dim=1)  # 4x4",
        "return [v2, [v1]]",
    ]


def test_a_write_into_a_part_is_a_line() -> None:
    assert "v1[:, 0] = 1" in traced("y = torch.zeros_like(x)\ny[:, 0] = 1\nreturn y")


def test_a_trace_ends_where_values_decide() -> None:
    assert traced("y = x * 2\nif y.sum() > 0:\n    y = y + 1\nreturn y")[-1] == "..."


def test_a_module_that_cannot_be_made_has_no_trace() -> None:
    assert traced("return x", init="raise RuntimeError('no')") == []


def test_a_long_trace_is_cut() -> None:
    lines = traced("for _ in range(100):\n    x = x + 1\nreturn x")
    assert len(lines) == MAX_LINES + 1 and lines[-1] == "..."


@pytest.mark.parametrize("suite", ["graphs", "modules"])
def test_drawn_problems_are_traced_to_their_end(suite: str) -> None:
    for problem in load_problems(ProblemsConfig(suite=suite, limit=24, seed=5)):
        last = trace(problem).splitlines()[-1]
        assert last == "..." or last.startswith("return "), problem.id
