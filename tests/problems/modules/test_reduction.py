"""Reductions, scans, norms, pooling, losses, attention."""

from __future__ import annotations

import random
import re

import pytest

from kernel_core.errors import ConfigError
from kernel_core.problems.modules.reduction import FAMILIES
from kernel_core.problems.modules.reduction.answer import Answer, fill, mistake
from kernel_core.problems.modules.reduction.layout import draw_layout
from kernel_core.problems.source import parse_problem

from .conftest import draw, draw_anew


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_repeats_itself_and_has_good_kernels_and_mistakes(family: str) -> None:
    for seed in range(20):
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        grades = [kernel.grade for kernel in draft.kernels]
        assert 2 <= sum(grade != "mistake" for grade in grades) <= 3
        assert 1 <= grades.count("mistake") <= 2
        assert all(len(kernel.thinking.split()) <= 60 for kernel in draft.kernels)
        assert draft == draw_anew(family, seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_of_different_seeds_differ(family: str) -> None:
    assert len({draw(family, seed).reference for seed in range(20)}) > 15


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_short_and_no_mistake_is_a_good_kernel(family: str) -> None:
    for seed in range(20):
        kernels = draw(family, seed).kernels
        good = {kernel.source for kernel in kernels if kernel.grade != "mistake"}
        for kernel in kernels:
            assert len(kernel.source) < 3400, (family, seed, len(kernel.source))
            assert kernel.grade != "mistake" or kernel.source not in good, (family, seed, kernel.fault)


def test_a_layout_fits_a_gpu_and_keeps_its_dimension_in_bounds() -> None:
    for seed in range(200):
        layout = draw_layout(random.Random(seed), (2, 3, 4, 5), most_n=4096)
        numbers = [size.gpu for size in layout.sizes]
        total = 1
        for number in numbers:
            total *= number
        assert 10_000_000 < total < 100_000_000
        assert layout.n == numbers[layout.dim] <= 4096


def test_a_dimension_in_the_middle_is_drawn_as_often_as_the_last_and_may_have_a_name() -> None:
    layouts = [draw_layout(random.Random(seed), (3, 4)) for seed in range(400)]
    dims = [layout.dim % len(layout.sizes) for layout in layouts]
    middle = sum(0 < dim < len(layout.sizes) - 1 for dim, layout in zip(dims, layouts, strict=True))
    last = sum(layout.last for layout in layouts)
    assert 120 < last <= middle + 40 and middle > 120
    assert len({layout.name for layout in layouts}) >= 4


@pytest.mark.parametrize("family", ("reduce_dim", "arg_extreme", "logsumexp", "softmax_dim", "vector_norm"))
def test_kernels_hold_for_any_dimension_of_the_input(family: str) -> None:
    for seed in range(12):
        for kernel in draw(family, seed).kernels:
            assert "inner" in kernel.source, (family, kernel.grade)
            assert "_row_" not in kernel.source or "if inner == 1:" in kernel.source


def test_some_losses_have_one_target_a_row_or_a_column() -> None:
    sources = [draw("pair_loss", seed).kernels[0].source for seed in range(80)]
    assert sum("cols = predictions.shape[-1]" not in source for source in sources) >= 40
    for sign in ("%", "//"):
        assert sum(bool(re.search(rf"\+ off\w+ {sign} \w+, mask", source)) for source in sources) >= 4


def test_a_marker_alone_on_its_line_takes_lines_at_its_indentation_or_goes() -> None:
    template = "def f():\n    @BODY@\n    @NOTHING@\n    return @VALUE@\n"
    text = fill(template, BODY="a = 1\nb = 2", NOTHING="", VALUE="a + b")
    assert text == "def f():\n    a = 1\n    b = 2\n    return a + b\n"


def test_a_mistake_that_changes_nothing_is_refused() -> None:
    right = Answer("fused", ("x = 1\n",), ("return x",), "One number.")
    with pytest.raises(ConfigError, match="no_root"):
        mistake(right, "sqrt", "", "no_root")
