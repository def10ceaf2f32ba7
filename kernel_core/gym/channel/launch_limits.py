"""Limits of one launch on the GPUs that times are predicted for; a driver refuses more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """The limits of one program, which CUDA calls a block."""

    shared_bytes: int
    threads: int = 1024


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the most shared memory of a
# block (which it has to opt in to), and the most threads; the same table has the dimensions of a grid.
LIMITS = {80: LaunchLimits(163 << 10), 89: LaunchLimits(99 << 10), 90: LaunchLimits(227 << 10)}
"""Limits by compute capability."""
_MOST_X = 2**31 - 1
_MOST_YZ = 65535


def excess_of(shared_bytes: int, threads: int, capability: int) -> str | None:
    """The resource that a program exceeds, or None."""
    limits = LIMITS[capability]
    if shared_bytes > limits.shared_bytes:
        return f"a program takes {shared_bytes} bytes of shared memory; {limits.shared_bytes} are allowed"
    if threads > limits.threads:
        return f"a program has {threads} threads; {limits.threads} are allowed"
    return None


def grid_fault(grid: Sequence[int]) -> str | None:
    """The reason why no launch on this grid happens, or None. An empty grid is no fault."""
    sizes = (*grid, 1, 1)[: max(3, len(grid))]
    if math.prod(sizes) == 0:
        return None
    for name, size, most in zip("xyz", sizes, (_MOST_X, _MOST_YZ, _MOST_YZ), strict=False):
        if not 0 < size <= most:
            return f"a grid of {size} in {name}; {most} are allowed"
    # Triton's launcher requires a positive 32-bit product there.
    if not 0 < math.prod(sizes) % 2**32 < 2**31:
        return f"a grid of {math.prod(sizes)} programs; {_MOST_X} are allowed"
    return None
