"""Draws of the module families."""

from __future__ import annotations

import random
from functools import cache

import pytest

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.generate import FAMILIES


def draw_anew(family: str, seed: int) -> Draft:
    """One problem of a family with its kernels; the same for the same seed."""
    return FAMILIES[family](random.Random(f"{family} {seed}"))


draw = cache(draw_anew)
"""The same, once for all tests of a process."""


@pytest.fixture(
    params=[range(3), pytest.param(range(3, 40), marks=pytest.mark.exhaustive)],
    ids=["three", "thirty-seven more"],
)
def seeds(request: pytest.FixtureRequest) -> range:
    """Seeds for tests that read the syntax trees of kernels."""
    return request.param
