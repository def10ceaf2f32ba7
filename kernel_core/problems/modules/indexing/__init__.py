"""Families that read inputs at other places: pieces, neighbours, moved copies, indices, rows of tables."""

from __future__ import annotations

from functools import partial

from kernel_core.problems.modules.draft import Draw
from kernel_core.problems.modules.indexing import endings
from kernel_core.problems.modules.indexing.draws import draw_program
from kernel_core.problems.modules.indexing.rearranged import rearranged
from kernel_core.problems.modules.indexing.shared_values import shared_values
from kernel_core.problems.modules.indexing.tables import draw_table_program

FAMILIES: dict[str, Draw] = {
    **{
        f"{views}_{ending.__name__}": partial(ending, draw=draw)
        for views, draw in (("axis", draw_program), ("table", draw_table_program))
        for ending in (endings.mapped, endings.joined, endings.reduced)
    },
    "rearranged": rearranged,
    "shared_values": shared_values,
}
