"""Arguments of kernels that are sizes: few, with one meaning each, and in one order."""

from __future__ import annotations

import ast
import re

import pytest

from kernel_core.generator.answer import answer
from kernel_core.generator.lines import joined
from kernel_core.problems.source import parse_problem
from tests.generator.small_problems import problem


def kernels(source: str) -> dict[str, list[str]]:
    """Parameters of each kernel by its name."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in functions
        if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def written(source: str) -> str:
    return answer(parse_problem(source, id="test", suite="test")).source


def parameters(source: str) -> list[str]:
    (names,) = kernels(written(source)).values()
    return names


def test_arguments_of_drawn_kernels_differ_and_stand_in_one_order(answers_of_graphs, answers_by_schedule):
    sources = [*answers_of_graphs.values(), *answers_by_schedule.values()]
    seen = 0
    for name, names in (kernel for source in sources for kernel in kernels(source).items()):
        assert len(set(names)) == len(names), name
        pointers = [place for place, text in enumerate(names) if text.endswith("_ptr")]
        tiles = [place for place, text in enumerate(names) if text.isupper() and len(text) > 3]
        assert pointers == list(range(len(pointers))) or name in ("multiply", "log_add_exp"), name
        counts = [text for text in names if text in ("n_elements", "n_rows", "n_cols")]
        assert counts == names[len(pointers) : len(pointers) + len(counts)], name
        assert not re.search(
            r"\b(?!IC|O[DHWLC]\b|[KSPD][DHWL]\b)[A-Z]{2,}\d*\b", " ".join(names[: min(tiles, default=0)])
        )
        seen += bool(counts)
    assert seen > 60


@pytest.mark.parametrize(
    ("expression", "inputs", "sizes"),
    [
        ("a.transpose(1, 2) + 1", ["torch.randn(2, 3, 4)"], ["M", "N"]),
        ("a + b", ["torch.randn(2, 3, 4, 5)", "torch.randn(3, 1, 1)"], ["channels", "inner"]),
        ("a + b", ["torch.randn(4, 1, 5)", "torch.randn(1, 3, 1)"], ["M", "N"]),
        ("a + b", ["torch.randn(2, 3, 4)", "torch.randn(3, 4)"], ["n_cols"]),
        ("a.permute(0, 2, 3, 1) * 2", ["torch.randn(2, 3, 4, 5)"], ["W", "inner"]),
        ("a.permute(0, 2, 1, 3) * 2", ["torch.randn(2, 3, 4, 5)"], ["C", "H", "W"]),
    ],
)
def test_a_kernel_has_the_sizes_into_which_its_indices_fall(expression, inputs, sizes):
    names = parameters(problem(expression, *inputs))
    assert sorted(names[names.index("n_elements") + 1 : -1]) == sorted(sizes)


def test_a_multiple_of_a_quotient_keeps_its_brackets():
    source = written(problem("a[:, 2 * (a.shape[1] // 3) :] + 1", "torch.randn(4, 10)"))
    assert "2 * (a.shape[-1] // 3)" in source


def test_axes_that_are_repeated_have_no_size():
    lines = written(problem("torch.maximum(a, b)", "torch.randn(4, 1, 5)", "torch.randn(1, 3, 1)"))
    assert "a_ptr + b * N + n," in lines and "b_ptr + m," in lines
    expanded = written(problem("a.expand(4, -1) + b", "torch.randn(1, 5)", "torch.randn(4, 5)"))
    assert "a_ptr + i % N," in expanded or "a_ptr + col," in expanded


def test_a_reshape_that_only_joins_axes_leaves_the_index():
    layer = "self.norm = nn.GroupNorm(2, 6)"
    lines = written(problem("self.norm(a)", "torch.randn(3, 6, 5, 7)", layers=layer))
    assert "offsets = rows[:, None] * n_cols + cols[None, :]\n    a = tl.load(a_ptr + offsets" in lines


def test_a_product_is_written_with_its_sizes():
    lines = ["a = i // MN", "b = x * MN + i % MN"]
    assert joined(lines, set(), {"MN": ["M", "K"], "K": ["N", "L"]}) == [
        "    a = i // L // N // M",
        "    b = x * M * N * L + i % (M * N * L)",
    ]


def test_a_product_beyond_int32_stays_one_argument():
    source = written(problem("a.transpose(1, 2) + 1", "torch.randn(2, 400, 7000000, device='meta')"))
    assert "b = i // inner\n" in source and "m = i // N % M\n" in source


@pytest.mark.parametrize(
    ("expression", "shapes", "divided"),
    [
        ("torch.relu(a + b[:, None, None])", ((3, 5, 24, 31), (5,)), "channel = row % channels"),
        ("a * b", ((7, 700), (700,)), ""),
        ("a * b[:, :, None] + c[:, None]", ((3, 5, 600), (3, 5), (3, 600)), "outer = row // inner"),
    ],
)
def test_blocks_lie_along_long_rows_where_elements_would_be_divided(expression, shapes, divided):
    source = written(problem(expression, *(f"torch.randn{shape}" for shape in shapes)))
    lines = [line.strip() for line in source.partition("class")[0].splitlines() if re.search("//|%", line)]
    assert lines == [divided] * bool(divided)
    assert "row = tl.program_id(0).to(tl.int64)" in source and "triton.cdiv(n_cols, 1024))]" in source


@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("torch.relu(a)", ((7, 700),)),  # nothing is divided
        ("a * b", ((700, 40), (40,))),  # rows are short
        ("a.transpose(0, 1) + 1", ((40, 700),)),  # so are those of the result
    ],
)
def test_blocks_of_elements_remain_where_rows_gain_nothing(expression, shapes):
    source = written(problem(expression, *(f"torch.randn{shape}" for shape in shapes)))
    assert "i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)" in source


def test_where_elements_are_divided_all_the_same_the_index_of_a_row_is():
    source = written(problem("a.permute(0, 2, 3, 1) + 1", "torch.randn(3, 5, 24, 31)"))
    assert "outer = cols // inner" in source and "offset = cols % inner" in source
