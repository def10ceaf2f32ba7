"""The split of a problem in a file: a hash of its id, so that adding files moves none of the others."""

from __future__ import annotations

import re

from kernel_core.problems.splits import Split, hashed_split

VALIDATION_FILE_PERCENT = 10
HELD_OUT_FILE_PERCENT = 10
_DIGEST = re.compile(r"[-_][0-9a-f]{8,}$")


def file_split(problem_id: str) -> Split:
    """`train` for 80 % of ids, `validation` and `held_out` for 10 % each.

    A digest at an id's end is left out: problems that differ only in their sizes stay together.
    """
    return hashed_split(_DIGEST.sub("", problem_id), HELD_OUT_FILE_PERCENT, VALIDATION_FILE_PERCENT)
