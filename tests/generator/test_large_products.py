"""Products by their sizes: copies of operands along K, and groups of large tiles."""

from __future__ import annotations

import re

import pytest

from kernel_core.generator.answer import answer
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_here
from kernel_core.problems.load import parse_problem
from kernel_core.records import Evaluation
from tests.generator.small_problems import problem

SIDE = 2048


def tensor(*shape: int, dtype: str = "float32") -> str:
    return f"torch.randn({', '.join(map(str, shape))}, dtype=torch.{dtype})"


def source_of(expression: str, *inputs: str, layers: str = "pass", precision: str = "tf32") -> str:
    read = parse_problem(problem(expression, *inputs, layers=layers), id="test/large", suite="test")
    return answer(read, precision).source


def copies(source: str) -> list[str]:
    return re.findall(r"^ +\w+_t = (.*)\.contiguous\(\)$", source, re.MULTILINE)


@pytest.mark.parametrize(
    ("expression", "shapes", "expected"),
    [
        ("a @ b", [(SIDE, SIDE), (SIDE, SIDE)], ["b.t()"]),
        ("a.T @ b", [(SIDE, SIDE), (SIDE, SIDE)], ["a.t()", "b.t()"]),
        ("a.T @ b.T", [(SIDE, SIDE), (SIDE, SIDE)], ["a.t()"]),
        ("a @ b.T", [(SIDE, SIDE), (SIDE, SIDE)], []),
        ("torch.bmm(a, b)", [(8, 1024, 512), (8, 512, 1024)], ["b.transpose(-2, -1)"]),
        ("a @ b", [(4, 512, SIDE), (SIDE, 768)], ["b.t()"]),
        ("torch.einsum('bijl,lk->bijk', a, b)", [(4, 32, 64, 256), (256, 768)], ["b.t()"]),
    ],
)
def test_a_large_product_in_tf32_reads_operands_along_k(expression, shapes, expected):
    source = source_of(expression, *(tensor(*shape) for shape in shapes))
    assert copies(source) == expected
    assert source.count("# Hopper's TF32 products read both operands along K.") == bool(expected)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(256, SIDE, SIDE), (SIDE, 256, SIDE), (SIDE, SIDE, 128), (512, 512, 512), (SIDE, SIDE, SIDE + 1)],
)
def test_no_copy_where_it_saves_little_time(m, n, k):
    assert not copies(source_of("a @ b", tensor(m, k), tensor(k, n)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_no_copy_of_sixteen_bit_operands(dtype):
    assert not copies(source_of("a @ b", *[tensor(SIDE, SIDE, dtype=dtype)] * 2))


@pytest.mark.parametrize("precision", ["tf32x3", "ieee"])
def test_no_copy_at_other_precisions(precision):
    assert not copies(source_of("a @ b", *[tensor(SIDE, SIDE)] * 2, precision=precision))


def test_no_copy_of_an_operand_that_the_kernel_computes():
    source = source_of("a @ (b * 2)", *[tensor(SIDE, SIDE)] * 2)
    assert not copies(source) and source.count("@triton.jit") == 1


def test_a_parameter_and_the_result_of_another_kernel_are_copied_like_an_input():
    weight = f"self.weight = nn.Parameter({tensor(SIDE, SIDE)})"
    assert copies(source_of("a @ self.weight", tensor(SIDE, SIDE), layers=weight)) == ["self.weight.t()"]
    chain = source_of("a @ torch.softmax(b, -1)", *[tensor(SIDE, SIDE)] * 2)
    assert copies(chain) == ["softmax_out.t()"]


def test_two_products_share_a_copy():
    source = source_of("(a @ b, c @ b)", *[tensor(SIDE, SIDE)] * 3)
    assert copies(source) == ["b.t()"] and "[grid](a, b_t, " in source and "[grid](c, b_t, " in source


@pytest.mark.parametrize("precision", ["tf32x3", "tf32"])
def test_loads_of_a_product_are_masked_along_k_alone(precision):
    inputs = tensor(2, 40, 33), tensor(2, 33, 20)
    lines = source_of("torch.bmm(a, b)", *inputs, precision=precision).splitlines()
    loads, stores = ([line for line in lines if name in line] for name in ("tl.load(", "tl.store("))
    assert [re.findall(r"mask=(.*), other", line)[0] for line in loads] == [
        "k[None, :] < K",
        "k[:, None] < K",
    ]
    assert "mask=(m[:, None] < M) & (n[None, :] < N)" in stores[0]
    assert lines.count("    m_in = m % M") == lines.count("    n_in = n % N") == 1


def test_tiles_for_three_products_in_tf32_are_their_own():
    inputs = [tensor(SIDE, SIDE)] * 2
    assert "configs=TF32X3_CONFIGS" in source_of("a @ b.T", *inputs, precision="tf32x3")
    halves = [tensor(SIDE, SIDE, dtype="bfloat16")] * 2
    assert "configs=LARGE_CONFIGS" in source_of("a @ b.T", *halves, precision="tf32x3")


def test_large_tiles_are_for_products_with_enough_of_them():
    large = source_of("a @ b.T", *[tensor(SIDE, SIDE)] * 2)
    assert "configs=LARGE_CONFIGS" in large and "tl.swizzle2d(" in large
    small = source_of("a @ b.T", *[tensor(1024, 1024)] * 2)
    assert "configs=CONFIGS" in small and "swizzle2d" not in small


@pytest.mark.parametrize(
    ("expression", "inputs"),
    [
        ("torch.relu(a.T @ b) * 0.5", ["torch.randn(K, M)", "torch.randn(K, N)"]),
        ("torch.bmm(a, b)", ["torch.randn(2, M, K)", "torch.randn(2, K, N)"]),
    ],
)
@pytest.mark.parametrize("sizes", [{}, {"M": 200, "N": 130, "K": 48}])
@pytest.mark.exhaustive
def test_the_judge_accepts_large_products(expression, inputs, sizes):
    text = "M, N, K = 2048, 4096, 1024\n\n\ndef get_inputs"
    source = problem(expression, *inputs).replace("def get_inputs", text)
    read = parse_problem(source, id="test/large", suite="test")
    written = answer(read, "tf32")
    assert copies(written.source) and "swizzle2d" in written.source
    request = request_of(read, written.source, sizes, 1, "cpu")
    [judged] = judge_here([request], {"device": "cpu", "rules": "dojo", "cluster": "local"})[0]
    assert isinstance(judged.outcome, Evaluation) and judged.outcome.verdict == "correct"
