"""Answers that leave products to the library."""

from __future__ import annotations

from kernel_core.generator.answer import answer
from kernel_core.generator.graded import graded_kernels, whole_answer
from kernel_core.generator.read import PRODUCTS
from kernel_core.problems.load import parse_problem
from tests.generator.small_problems import problem


def answered(expression: str, *inputs: str, library: frozenset[str] = PRODUCTS):
    """Return the answer to a problem of one expression."""
    read = parse_problem(problem(expression, *inputs), id="test/library", suite="test")
    return answer(read, library=library)


def test_a_product_stays_with_torch_and_what_follows_is_a_kernel():
    inputs = ("torch.randn(40, 33)", "torch.randn(33, 20)")
    written = answered("torch.relu(a @ b)", *inputs)
    assert written.kernels == 1 and "tl.dot" not in written.source and written.reasons == []
    assert "tl.dot" in answered("torch.relu(a @ b)", *inputs, library=frozenset()).source


def test_sizes_of_a_product_are_read_behind_it():
    chain = "torch.sigmoid(torch.relu(torch.tanh(a @ b) @ b) @ b)"
    lines = answered(chain, "torch.randn(40, 20)", "torch.randn(20, 20)").source.splitlines()
    for name in ("matmul", "matmul_2", "matmul_3"):
        made = next(index for index, line in enumerate(lines) if line.strip().startswith(f"{name} ="))
        assert all(index > made for index, line in enumerate(lines) if f" {name}." in line.split("=")[-1])


def asked(expression: str, *inputs: str):
    return parse_problem(problem(expression, *inputs), id="test/library", suite="test")


def test_products_are_left_to_torch_only_where_another_step_is_a_kernel():
    images = ("torch.randn(2, 4, 9, 9)", "torch.randn(3, 4, 3, 3)")
    assert "F.conv2d" in whole_answer(asked("torch.relu(torch.nn.functional.conv2d(a, b))", *images)).source
    alone = asked("torch.nn.functional.conv2d(a, b)", *images)
    assert "conv2d(" not in whole_answer(alone).source
    assert len(graded_kernels(alone)) == 1
    matrices = ("torch.randn(40, 33)", "torch.randn(33, 20)")
    for moved in (
        "torch.matmul(a.t().contiguous().t(), b)",
        "torch.matmul(torch.diag(a[:, 0]), a)",
        "torch.tril(a @ b)",
    ):
        assert "tl.dot" in whole_answer(asked(moved, *matrices)).source
    assert "torch.matmul" in whole_answer(asked("torch.relu(torch.matmul(a, b))", *matrices)).source
    assert "tl.dot" in whole_answer(asked("torch.matmul(a, b)", *matrices)).source


def test_an_attention_is_one_kernel_between_layers_of_torch():
    heads = ("torch.randn(2, 3, 40, 16)",)
    fused = whole_answer(asked("F.scaled_dot_product_attention(a, torch.relu(a), a)", *heads))
    assert "attention" in fused.kinds and "scaled_dot_product_attention" not in fused.source
    spelled = whole_answer(asked("torch.softmax(a @ a.transpose(-2, -1), dim=-1) @ torch.relu(a)", *heads))
    assert "attention" in spelled.kinds and "matmul" not in spelled.source.partition("class ModelNew")[2]
    plain = whole_answer(asked("torch.softmax(a @ a.transpose(-2, -1), dim=-1)", *heads))
    assert "attention" not in plain.kinds and "tl.dot" not in plain.source
