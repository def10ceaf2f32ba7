"""Draws of all families: they parse, repeat themselves, and differ between seeds."""

from __future__ import annotations

import pytest

from kernel_core.problems.modules.generate import FAMILIES
from kernel_core.problems.source import parse_problem

from .conftest import draw, draw_anew

SEEDS = range(20)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_and_repeats_itself(family: str) -> None:
    for seed in SEEDS:
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert draft.operators
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        assert draft == draw_anew(family, seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_of_different_seeds_differ(family: str) -> None:
    assert len({draw(family, seed).reference for seed in SEEDS}) > 15
