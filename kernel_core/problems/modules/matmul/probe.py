"""The value of a chain of Triton lines at some points, so that a draw is neither trivial nor overflows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

_POINTS = 512
_LARGEST_VALUE = 300.0
_SMALLEST_SPREAD = 0.05
_VISIBLE = 0.02
_VISIBLE_SHARE = 0.2
_erf = np.vectorize(math.erf, otypes=[np.float64])

_TL = SimpleNamespace(
    exp=np.exp,
    log=np.log,
    abs=np.abs,
    sqrt=np.sqrt,
    rsqrt=lambda x: 1.0 / np.sqrt(x),
    sin=np.sin,
    cos=np.cos,
    erf=_erf,
    sigmoid=lambda x: 1.0 / (1.0 + np.exp(-x)),
    maximum=np.maximum,
    minimum=np.minimum,
    where=np.where,
)
"""The part of Triton's language that elementwise lines use, over arrays."""

Array = np.ndarray[Any, np.dtype[np.float64]]


def value_of(
    lines: Sequence[str], names: Mapping[str, float | None], spread: float = 1.0, *, uniform: bool = False
) -> Array:
    """The values of `x` after the lines, which are trusted text of this package.

    `names` gives the numbers that the lines mention; a name without a number has random values. The first
    values are normal with the standard deviation `spread`, or uniform in [0, 1).
    """
    rng = np.random.default_rng(7)
    start = rng.random(_POINTS) if uniform else spread * rng.standard_normal(_POINTS)
    space: dict[str, Any] = {"tl": _TL, "x": start}
    for name, number in names.items():
        space[name] = rng.standard_normal(_POINTS) if number is None else number
    with np.errstate(all="ignore"):
        exec("\n".join(lines), space)
    return np.asarray(space["x"] + np.zeros(_POINTS), dtype=np.float64)


def worth_computing(values: Array) -> bool:
    """Whether nothing overflows and the result varies."""
    return bool(np.all(np.abs(values) < _LARGEST_VALUE) and values.std() > _SMALLEST_SPREAD)


def differ(right: Array, wrong: Array) -> bool:
    """Whether so many values differ that no tolerance lets the wrong ones pass."""
    close = np.abs(right - wrong) <= _VISIBLE * (1.0 + np.abs(right))
    return bool(np.mean(~close) > _VISIBLE_SHARE)
