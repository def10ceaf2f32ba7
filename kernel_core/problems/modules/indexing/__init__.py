"""Families that read inputs at other places: pieces, neighbours, moved copies, indices, rows of tables."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.indexing.endings import axis_joined, axis_mapped, axis_reduced
from kernel_core.problems.modules.indexing.rearranged import rearranged
from kernel_core.problems.modules.indexing.shared_values import shared_values
from kernel_core.problems.modules.indexing.tables import draw_table_program

_ENDINGS = {"mapped": axis_mapped, "joined": axis_joined, "reduced": axis_reduced}
FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "axis_mapped": axis_mapped,
    "axis_joined": axis_joined,
    "axis_reduced": axis_reduced,
    **{
        f"table_{name}": functools.partial(ending, draw=draw_table_program, family=f"table_{name}")
        for name, ending in _ENDINGS.items()
    },
    "rearranged": rearranged,
    "shared_values": shared_values,
}
