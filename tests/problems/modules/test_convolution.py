"""Convolutions and chains behind them."""

from __future__ import annotations

import random

import pytest

from kernel_core.problems.modules.convolution import FAMILIES
from kernel_core.problems.modules.convolution.geometry import Wish, draw_geometry
from kernel_core.problems.source import parse_problem

from .conftest import draw


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_repeats_itself_and_has_all_grades(family: str) -> None:
    for seed in range(20):
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        assert [kernel.grade for kernel in draft.kernels] == ["naive", "fused", "tuned", "mistake"]
        assert all(len(kernel.thinking.split()) <= 60 for kernel in draft.kernels)
        assert draft == draw(family, seed)
    assert len({draw(family, seed).reference for seed in range(20)}) == 20


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mistake_differs_from_the_kernel_that_it_is_made_of(family: str) -> None:
    for seed in range(40):
        *good, mistake = draw(family, seed).kernels
        assert mistake.source not in {kernel.source for kernel in good}, (family, seed, mistake.fault)


@pytest.mark.parametrize("transposed", [False, True])
def test_output_sizes_are_positive_on_the_cpu_and_the_gpu(transposed: bool) -> None:
    for seed in range(60):
        geometry = draw_geometry(random.Random(seed), Wish(rank=1 + seed % 3, transposed=transposed))
        for extent in (
            tuple(size.gpu for size in geometry.spatial),
            tuple(size.cpu for size in geometry.spatial),
        ):
            assert min(geometry.out_extent(extent)) >= 1, geometry
        assert geometry.in_channels.cpu % geometry.groups == 0
        assert geometry.out_channels.gpu % geometry.groups == 0
