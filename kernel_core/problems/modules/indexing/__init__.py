"""Families that read an input at other places along an axis: pieces, neighbours, moved copies, indices."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.indexing.joined import axis_joined
from kernel_core.problems.modules.indexing.mapped import axis_mapped
from kernel_core.problems.modules.indexing.reduced import axis_reduced

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "axis_mapped": axis_mapped,
    "axis_joined": axis_joined,
    "axis_reduced": axis_reduced,
}
