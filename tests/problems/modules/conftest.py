"""Draws of the module families."""

from __future__ import annotations

import random
from functools import cache

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.generate import FAMILIES


def draw_anew(family: str, seed: int) -> Draft:
    """One problem of a family; the same for the same seed."""
    return FAMILIES[family](random.Random(f"{family} {seed}"))


draw = cache(draw_anew)
"""The same, once for all tests of a process."""
