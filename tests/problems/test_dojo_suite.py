"""Our own hand-written problems work, at the sizes a CPU judges them."""

from __future__ import annotations

import math

import pytest
import torch

from kernel_core.problems.load import load_dojo
from kernel_core.problems.source import resize
from kernel_core.records import Problem

SUITE = load_dojo()


def test_the_suite_covers_what_it_promises() -> None:
    assert len(SUITE) >= 24
    assert {problem.family for problem in SUITE} >= {
        *("elementwise_chain", "binary_chain", "bias_activation", "row_reduce", "softmax", "log_softmax"),
        *("layer_norm", "rms_norm", "group_norm", "matmul_epilogue", "loss", "pool1d", "cumsum", "embedding"),
        *("gather", "attention", "gated", "outer"),
    }
    assert all(problem.id == f"dojo/{problem.name}" for problem in SUITE)


@pytest.mark.parametrize("problem", SUITE, ids=lambda problem: problem.name)
def test_a_problem_runs_small_and_its_output_depends_on_its_inputs(problem: Problem) -> None:
    assert problem.cpu_constants
    assert "# cpu" not in problem.source
    namespace: dict = {}
    exec(compile(resize(problem, problem.cpu_constants).source, problem.id, "exec"), namespace)
    torch.manual_seed(0)
    model = namespace["Model"](*namespace["get_init_inputs"]())
    with torch.no_grad():
        one, other = (model(*namespace["get_inputs"]()) for _ in range(2))
    assert torch.isfinite(one).all()
    assert one.shape == other.shape
    assert not torch.allclose(one, other, rtol=1e-2, atol=1e-2)
    assert one.abs().max() > 1e-2
    elements = sum(value.numel() for value in namespace["get_inputs"]())
    assert elements < 50_000


@pytest.mark.parametrize("problem", SUITE, ids=lambda problem: problem.name)
def test_the_gpu_sizes_are_large_enough_to_time(problem: Problem) -> None:
    assert math.prod(size for size in problem.constants.values() if isinstance(size, int)) >= 1 << 15
