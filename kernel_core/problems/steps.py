"""One step of a problem: what it is in PyTorch, in a Triton kernel, and on a small padded numpy tile.

The numpy form decides, while a problem is drawn, whether the step does something worth computing and
whether a mistake would show. A tile is `[rows, BLOCK]` with the padding lanes that a kernel has, so a
forgotten mask shows as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PROBE_ROWS = 6
PROBE_COLS = 37
PROBE_BLOCK = 64
PROBE_MASK = np.arange(PROBE_BLOCK) < PROBE_COLS

Fault = str
Value = Callable[[Array, Mapping[str, Array]], Array]
"""Padded tile and padded arguments by name to the new tile."""
Rival = Callable[[random.Random], "tuple[Fault, Step]"]


@dataclass(frozen=True)
class Step:
    """A step on the variable that the problem calls `v` (already substituted in every line)."""

    kind: str
    """The operation without its constants; the splits reserve pairs of these."""
    word: str
    """Its text in a plan: the operation with its constants."""
    torch: tuple[str, ...]
    tile: tuple[str, ...]
    value: Value
    rivals: tuple[Rival, ...] = field(default=(), compare=False)
    """Plausible wrong versions: each draws the fault's name and the step to write instead."""
    must_change: bool = True
    """If true, a problem is redrawn when this step hardly changes its input."""
