"""Reading a module: what a graph keeps of it, and what it refuses."""

from __future__ import annotations

import pytest

from kernel_core.generator.answer import answer
from kernel_core.generator.ir import walk
from kernel_core.generator.read import Unreadable, read, short_name
from kernel_core.generator.sizes import host
from kernel_core.problems.source import parse_problem
from tests.generator.small_problems import problem


def parsed(source: str):
    return parse_problem(source, id="test", suite="test")


def test_a_layer_becomes_operators_with_its_parameters_and_numbers_by_name():
    source = problem("self.norm(a)", "torch.randn(4, 33)", layers="self.norm = nn.LayerNorm(33, eps=0.25)")
    graph = read(parsed(source))
    values = walk((graph.outputs,))
    assert {value.text for value in values if value.op == "leaf"} == {
        "a",
        "self.norm.weight",
        "self.norm.bias",
    }
    numbers = [one for value in values for one in value.inputs if isinstance(one, float)]
    assert "self.norm.eps" in [host(one) for one in numbers]


def test_shapes_are_expressions_so_that_the_answer_holds_for_any_size():
    graph = read(parsed(problem("a.flatten(1) + 1", "torch.randn(4, 3, 5)")))
    rows, columns = graph.outputs.shape
    assert (int(rows), int(columns)) == (4, 15)
    assert host(rows) == "a.shape[0]"
    assert host(columns) == "a.shape[1:].numel()"


def test_a_function_without_an_entry_stays_a_call():
    graph = read(parsed(problem("torch.linalg.inv(a) + 1", "torch.randn(5, 5)")))
    assert [value.base for value in walk((graph.outputs,)) if value.op == "call"] == ["inv"]
    (reason,) = graph.reasons
    assert reason.startswith("inv: no entry")


def test_random_numbers_are_never_a_kernels():
    graph = read(parsed(problem("F.dropout(a, 0.5)", "torch.randn(5, 5)")))
    (reason,) = graph.reasons
    assert reason.startswith("dropout: random numbers")


def test_a_call_without_an_entry_becomes_the_operators_it_consists_of():
    graph = read(parsed(problem("F.unfold(a, 3, padding=1)", "torch.randn(2, 3, 9, 11)")))
    assert graph.reasons == []
    assert [value.op for value in walk((graph.outputs,)) if value.op == "call"] == []


def test_a_view_of_changed_memory_is_not_taken_for_its_old_value():
    source = problem("self.changed(a)", "torch.randn(4, 33)").replace(
        "    def forward",
        "    def changed(self, x):\n        y = x * 1\n        z = y.view(-1)\n        y[0] = 2.0\n"
        "        return z + 1\n\n    def forward",
    )
    with pytest.raises(Unreadable):
        read(parsed(source))


@pytest.mark.parametrize("expression", ["a.unknown_method()", "a.sum().item()"])
def test_what_cannot_be_run_on_fake_tensors_is_unreadable(expression):
    with pytest.raises(Unreadable):
        read(parsed(problem(expression, "torch.randn(5, 5)")))


def test_a_softmax_with_what_stands_around_it_is_one_kernel():
    source = problem("torch.softmax(a * 2 + 1, dim=-1) * b", "torch.randn(4, 33)", "torch.randn(4, 33)")
    assert answer(parsed(source)).kernels == 1


def test_a_product_with_its_epilogue_is_one_kernel():
    source = problem(
        "F.gelu(self.fc(a)) * b",
        "torch.randn(4, 33)",
        "torch.randn(4, 9)",
        layers="self.fc = nn.Linear(33, 9)",
    )
    written = answer(parsed(source))
    assert written.kernels == 1
    assert "self.fc = nn.Linear(33, 9)" in written.source
    assert "PyTorch keeps" not in written.thinking


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("torch.Tensor.add_", "add"),
        ("torch.Tensor.__rsub__", "rsub"),
        ("torch.Tensor.__iadd__", "add"),
        ("torch.special.special_erfcx", "erfcx"),
        ("torch.Tensor.mT.__get__", "mT"),
    ],
)
def test_all_spellings_of_an_operator_have_one_name(name, short):
    assert short_name(name) == short
