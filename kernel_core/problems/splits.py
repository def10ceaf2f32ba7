"""Assign a problem to its split, as a pure function of its family and its operations.

A reserved family is held out as a whole. Within the other families, pairs of neighbouring operations
are hashed: some pairs belong to `held_out` and some to `validation`, and `train` has neither. Names,
sizes and constants play no part, so a problem that differs only in those cannot change its split.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from typing import Literal

from kernel_core.problems.families import RESERVED
from kernel_core.problems.ops import UNARY
from kernel_core.problems.program import Program

Split = Literal["train", "validation", "held_out"]

HELD_OUT_PERCENT = 8
VALIDATION_PERCENT = 6


def split_of(program: Program) -> Split:
    """The split of a problem; a held-out pair weighs more than a validation pair."""
    if program.family in RESERVED:
        return "held_out"
    kinds = program.kinds
    reserved = {reserved_for(first, second) for first, second in itertools.pairwise(kinds)}
    return "held_out" if "held_out" in reserved else "validation" if "validation" in reserved else "train"


@functools.cache
def reserved_for(first: str, second: str) -> Split:
    """The split that a pair of neighbouring operations is kept for.

    Pairs without an elementwise operation make up the families themselves and are never reserved.
    """
    if first not in UNARY and second not in UNARY:
        return "train"
    return hashed_split(f"{first}>{second}")


def hashed_split(text: str, held_out: int = HELD_OUT_PERCENT, validation: int = VALIDATION_PERCENT) -> Split:
    """The split that a text falls into by its hash; the shares are in per cent."""
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    percent = int.from_bytes(digest, "big") % 100
    if percent < held_out:
        return "held_out"
    return "validation" if percent < held_out + validation else "train"
