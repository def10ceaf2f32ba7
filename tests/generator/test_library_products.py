"""Answers that leave products to the library."""

from __future__ import annotations

import ast

import pytest

from kernel_core.generator.answer import answer
from kernel_core.generator.graded import graded_kernels, whole_answer, widest_answer
from kernel_core.generator.library_calls import NO_CALLS, PRODUCTS, LibraryCalls
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_here
from kernel_core.problems.load import parse_problem
from kernel_core.records import Evaluation
from tests.generator.small_problems import problem

LIBRARY = LibraryCalls(PRODUCTS)


def answered(expression: str, *inputs: str, library: LibraryCalls = LIBRARY):
    """Return the answer to a problem of one expression."""
    read = parse_problem(problem(expression, *inputs), id="test/library", suite="test")
    return answer(read, library=library)


def test_a_product_stays_with_torch_and_what_follows_is_a_kernel():
    inputs = ("torch.randn(40, 33)", "torch.randn(33, 20)")
    written = answered("torch.relu(a @ b)", *inputs)
    assert written.kernels == 1 and "tl.dot" not in written.source and written.reasons == []
    assert "tl.dot" in answered("torch.relu(a @ b)", *inputs, library=NO_CALLS).source


def test_sizes_of_a_product_are_read_behind_it():
    chain = "torch.sigmoid(torch.relu(torch.tanh(a @ b) @ b) @ b)"
    lines = answered(chain, "torch.randn(40, 20)", "torch.randn(20, 20)").source.splitlines()
    for name in ("matmul", "matmul_2", "matmul_3"):
        made = next(index for index, line in enumerate(lines) if line.strip().startswith(f"{name} ="))
        assert all(index > made for index, line in enumerate(lines) if f" {name}." in line.split("=")[-1])


def undefined_names(source: str) -> set[str]:
    """Return local names of `forward` that are read before they are assigned."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    forward = next(node for node in functions if node.name == "forward")
    names = [node for statement in forward.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    known, early = {argument.arg for argument in forward.args.args}, set[str]()
    for statement in forward.body:
        own = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        early |= {node.id for node in own if isinstance(node.ctx, ast.Load) and node.id in stored - known}
        known |= {node.id for node in own if isinstance(node.ctx, ast.Store)}
    return early


def test_sizes_of_a_product_are_read_behind_it_where_they_equal_those_of_a_tensor_before_it():
    residual = "torch.bmm(w, a.flatten(2).transpose(1, 2)) - w.sum(-1, keepdim=True)"
    weights = "torch.softmax(torch.conv2d(a, b).flatten(2), 1)"
    source = answered(
        f"(lambda w: F.normalize({residual}, dim=2))({weights})",
        "torch.randn(2, 8, 5, 7)",
        "torch.randn(6, 8, 1, 1)",
    ).source
    assert "torch.bmm" in source and not undefined_names(source)


def test_an_initial_state_is_made_behind_the_product_that_its_size_comes_from():
    chain = "self.second(self.first(a @ b))"
    layers = "self.first, self.second = nn.GRUCell(20, 8), nn.RNNCell(8, 9)"
    read = asked(chain, "torch.randn(40, 33)", "torch.randn(33, 20)", layers=layers)
    assert not undefined_names(answer(read, library=LIBRARY).source)


def asked(expression: str, *inputs: str, layers: str = "pass"):
    return parse_problem(problem(expression, *inputs, layers=layers), id="test/library", suite="test")


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


@pytest.mark.parametrize(
    ("shapes", "dtype", "stays"),
    [
        ([(40, 33), (33, 20)], "float32", False),
        ([(4, 5, 33), (33, 20)], "float32", False),
        ([(40, 33), (33, 10)], "float32", True),
        ([(8, 1, 33), (8, 33, 20)], "float32", True),
        ([(40, 33), (33,)], "float32", True),
        ([(40, 33), (33, 20)], "bfloat16", True),
    ],
)
def test_the_widest_answer_writes_products_that_fill_a_tile(shapes, dtype, stays):
    inputs = [f"torch.randn({shape}, dtype=torch.{dtype})" for shape in shapes]
    read = asked("torch.relu(a @ b)", *inputs)
    assert ("tl.dot" not in widest_answer(read).source) == stays
    for precision in ("tf32", "ieee"):
        assert "tl.dot" not in widest_answer(read, precision).source
    assert "tl.dot" not in whole_answer(read).source


def test_the_widest_answer_leaves_convolutions_and_small_layers():
    layers = f"{CONVOLUTION}; self.wide, self.narrow = nn.Linear(144, 32), nn.Linear(32, 5)"
    expression = "self.narrow(torch.relu(self.wide(torch.relu(self.conv(a)).flatten(1))))"
    source = widest_answer(asked(expression, "torch.randn(16, 4, 11, 9)", layers=layers)).source
    assert source.count("tl.dot(") == source.count("F.conv2d(") == source.count("F.linear(") == 1


def test_the_widest_answer_has_an_attention_of_one_kernel():
    heads = "torch.randn(2, 3, 40, 16)"
    fused = widest_answer(asked("F.scaled_dot_product_attention(a, torch.relu(a), a)", heads))
    assert "attention" in fused.kinds and "scaled_dot_product_attention" not in fused.source
    wide = ("torch.randn(2, 3, 40, 300)", "torch.randn(300, 20)")
    apart = widest_answer(asked("F.scaled_dot_product_attention(a, a, a) @ b", *wide))
    assert apart.kinds == {"dot"} and "F.scaled_dot_product_attention(" in apart.source


def test_an_attention_is_one_kernel_between_layers_of_torch():
    heads = ("torch.randn(2, 3, 40, 16)",)
    fused = whole_answer(asked("F.scaled_dot_product_attention(a, torch.relu(a), a)", *heads))
    assert "attention" in fused.kinds and "scaled_dot_product_attention" not in fused.source
    spelled = whole_answer(asked("torch.softmax(a @ a.transpose(-2, -1), dim=-1) @ torch.relu(a)", *heads))
    assert "attention" in spelled.kinds and "matmul" not in spelled.source.partition("class ModelNew")[2]
    plain = whole_answer(asked("torch.softmax(a @ a.transpose(-2, -1), dim=-1)", *heads))
    assert "attention" not in plain.kinds and "tl.dot" not in plain.source


CONVOLUTION = "self.conv = nn.Conv2d(4, 6, 3, stride=2, padding=(1, 0))"


@pytest.mark.parametrize(
    ("expression", "layers"),
    [
        ("torch.relu(self.conv(a))", CONVOLUTION),
        ("self.conv(a).flatten(2).softmax(-1)", CONVOLUTION),
        ("F.max_pool2d(self.conv(a), 2)", CONVOLUTION),
        (
            "torch.tanh(self.conv(a))",
            "self.conv = nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2)",
        ),
    ],
)
def test_a_kernel_behind_a_convolution_adds_its_bias(expression, layers):
    problem_of = asked(expression, "torch.randn(2, 4, 9, 11)", layers=layers)
    written = whole_answer(problem_of)
    assert "F.conv" in written.source and "self.conv.bias" in written.source
    assert "stride=self.conv.stride" in written.source and "dilation" not in written.source
    request = request_of(problem_of, written.source, {}, 1, "cpu")
    ((result,), *_) = judge_here([request], {"device": "cpu", "rules": "dojo", "cluster": "local"})
    assert isinstance(result.outcome, Evaluation) and result.outcome.verdict == "correct"


@pytest.mark.parametrize(
    "expression",
    [
        "(self.conv(a), torch.relu(self.conv(a) + 1))",  # the result itself is returned
        "torch.relu(self.conv(a) @ b)",  # a product of torch's reads it
        "torch.relu(F.pad(self.conv(a), (1, 1, 1, 1), mode='reflect'))",
    ],
)
def test_torch_adds_the_bias_where_no_kernel_does(expression):
    inputs = ("torch.randn(2, 4, 9, 11)", "torch.randn(5, 7)")
    source = whole_answer(asked(expression, *inputs, layers=CONVOLUTION)).source
    assert "self.conv(a)" in source.partition("def forward")[2]
