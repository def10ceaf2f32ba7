"""The dispatcher: kernels run inside their contract, the original everywhere else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernel_core.optimize import dispatch
from kernel_core.optimize.dispatch import install, uninstall
from kernel_core.optimize.part import recorded_calls
from kernel_core.optimize.target import load_target
from kernel_core.optimize.write import write_part


class Marked(nn.Module):
    """Stands for a kernel: adds 100, so that a test sees which one ran."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return x * self.weight + 100


@pytest.fixture
def norm(monkeypatch):
    """A norm with a kernel in place, as under the interpreter."""
    monkeypatch.setattr(dispatch, "_INTERPRETED", True)
    target = load_target("tests.optimize.small_modules:norm")
    _, contract = write_part(target.module, recorded_calls(target, [""])[""])
    install(target.module, Marked, contract.model_dump(mode="json"))
    return target.module


def by_kernel(module, x) -> bool:
    with torch.no_grad():
        return bool((module(x) > 50).any())


def test_the_profiled_call_and_smaller_ones_run_the_kernel(norm):
    assert by_kernel(norm, torch.randn(2, 12, 32)) and by_kernel(norm, torch.randn(1, 5, 32))


@pytest.mark.parametrize(
    "x",
    [torch.randn(3, 12, 32), torch.randn(2, 13, 32), torch.randn(12, 32), torch.randn(2, 12, 32).double()],
    ids=["batch", "length", "rank", "type"],
)
def test_other_shapes_and_types_run_the_original(norm, x):
    assert not by_kernel(norm, x)


def test_training_gradients_and_autocast_run_the_original(norm):
    x = torch.randn(2, 12, 32)
    output = norm(x)
    output.sum().backward()
    assert norm.weight.grad is not None and not (output > 50).any()
    with torch.autocast("cpu", torch.bfloat16):
        assert not by_kernel(norm, x)
    assert not by_kernel(norm.train(), x)


def test_without_an_interpreter_a_cpu_runs_the_original(norm, monkeypatch):
    monkeypatch.setattr(dispatch, "_INTERPRETED", False)
    assert not by_kernel(norm, torch.randn(2, 12, 32))


def test_weights_are_those_of_the_module_after_a_change(norm):
    assert list(norm.state_dict()) == ["weight"]
    norm.load_state_dict({"weight": torch.zeros(32)})
    with torch.no_grad():
        assert torch.equal(norm(torch.randn(2, 12, 32)), torch.full((2, 12, 32), 100.0))
    norm.weight = nn.Parameter(torch.full((32,), 2.0))
    with torch.no_grad():
        assert torch.equal(norm(torch.ones(2, 12, 32)), torch.full((2, 12, 32), 102.0))


def test_a_compiler_traces_the_kernel_in_one_graph_and_once(norm):
    compiled, x = torch.compile(norm, backend="eager", fullgraph=True), torch.randn(2, 12, 32)
    assert by_kernel(compiled, x)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert by_kernel(compiled, x)


def test_uninstall_gives_the_original_back(norm):
    uninstall(norm)
    assert not by_kernel(norm, torch.randn(2, 12, 32))
