"""Traces in prompts."""

from __future__ import annotations

import pytest

from kernel_core.config import RolloutConfig
from kernel_core.dialogue import traces
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem

SOURCE = """
import torch
import torch.nn as nn
{top}

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4, 8)]
"""


def problem(top: str = "") -> Problem:
    """Problem with a statement of its own."""
    return parse_problem(SOURCE.format(top=top), id=f"trace/{top or 'plain'}", suite="test", family="")


def prompt(of: Problem, *, trace: bool) -> str:
    """Text of the first prompt."""
    return build_prompt(of, (), (), RolloutConfig(template="compact", trace=trace), len)[0]["content"]


def test_the_trace_stands_between_the_reference_and_the_request() -> None:
    with_trace = prompt(problem(), trace=True)
    expected = "\n\n# trace\nx: 4x8\nv1 = relu(x)  # 4x8\nreturn v1\n\n# write ModelNew"
    assert with_trace.endswith(expected)
    assert with_trace.removesuffix(expected) in prompt(problem(), trace=False)


def test_a_reference_that_ends_its_process_leaves_the_others_their_traces() -> None:
    bad, good = problem("import os; os._exit(1)"), [problem(f"# {number}") for number in range(5)]
    traces.keep_traces([*good[:2], bad, *good[2:]])
    assert "# trace" not in prompt(bad, trace=True)
    assert all("# trace" in prompt(each, trace=True) for each in good)


@pytest.mark.parametrize("top", ["while True: pass", "raise SystemExit(0)", "1 / 0"])
def test_a_reference_that_does_not_end_or_fails_has_no_trace(
    top: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MAX_SECONDS", 1)
    assert "# trace" not in prompt(problem(top), trace=True)
