"""Draws of the module families."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.generate import FAMILIES


def draw(family: str, seed: int) -> Draft:
    """One problem of a family with its kernels; the same for the same seed."""
    return FAMILIES[family](random.Random(f"{family} {seed}"))
