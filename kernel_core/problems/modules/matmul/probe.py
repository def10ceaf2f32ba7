"""The value of a chain of Triton lines at some points, so that a draw is neither trivial nor overflows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

_POINTS = 512
_ROWS, _COLUMNS = 32, 2048
_LARGEST_SUM = 1e5
_LEAST_STD = 3e-3
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


def points(spread: float = 1.0, *, uniform: bool = False) -> Array:
    """First values: normal with that standard deviation, or uniform in [0, 1)."""
    rng = np.random.default_rng(7)
    return rng.random(_POINTS) if uniform else spread * rng.standard_normal(_POINTS)


def rows(spread: float) -> Array:
    """Normal values of some rows."""
    return spread * np.random.default_rng(7).standard_normal((_ROWS, _COLUMNS))


def value_of(lines: Sequence[str], names: Mapping[str, float | None], start: Array) -> Array:
    """The values of `x` after the lines, which are trusted text of this package.

    `names` gives the numbers that the lines mention; a name without a number has random values.
    """
    rng = np.random.default_rng(8)
    space: dict[str, Any] = {"tl": _TL, "x": start}
    for name, number in names.items():
        space[name] = rng.standard_normal(start.shape[-1]) if number is None else number
    with np.errstate(all="ignore"):
        exec("\n".join(lines), space)
    return np.asarray(space["x"] + np.zeros_like(start), dtype=np.float64)


def pooled(values: Array, kind: str, window: int) -> Array:
    """The maximum or the mean of each window of a row."""
    windows = values[:, : values.shape[1] // window * window].reshape(values.shape[0], -1, window)
    found = windows.max(axis=2) if kind == "max_pool1d" else windows.mean(axis=2)
    return np.asarray(found, dtype=np.float64)


def reduced(values: Array, kind: str, columns: int) -> Array:
    """One value a row, of which a sum is as large as that of `columns` values."""
    if kind in ("max", "min"):
        found = values.max(axis=1) if kind == "max" else values.min(axis=1)
    elif kind == "logsumexp":
        found = np.log(np.exp(values).mean(axis=1)) + np.log(columns)
    else:
        length = columns if kind == "sum" else 1
        found = values.mean(axis=1) * length
    return np.asarray(found, dtype=np.float64)


def varies(values: Array) -> bool:
    """Whether nothing overflows, and few rows share a value."""
    finite = bool(np.all(np.abs(values) < _LARGEST_SUM))
    return finite and len(np.unique(values)) > values.size // 2 and bool(values.std() > _LEAST_STD)


def worth_computing(values: Array) -> bool:
    """Whether nothing overflows and the result varies."""
    return bool(np.all(np.abs(values) < _LARGEST_VALUE) and values.std() > _SMALLEST_SPREAD)


def differ(right: Array, wrong: Array) -> bool:
    """Whether so many values differ that no tolerance lets the wrong ones pass."""
    close = np.abs(right - wrong) <= _VISIBLE * (1.0 + np.abs(right))
    return bool(np.mean(~close) > _VISIBLE_SHARE)
