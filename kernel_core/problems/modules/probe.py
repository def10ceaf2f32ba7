"""The values of a chain of torch's lines at some points, so that a draw is neither trivial nor overflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    import torch  # takes seconds, and is needed by draws alone
    from torch.nn import functional

    rng = np.random.default_rng(8)
    space: dict[str, Any] = {"torch": torch, "F": functional, "x": torch.from_numpy(start)}
    for name, number in names.items():
        value = rng.standard_normal(start.shape[-1]) if number is None else np.float64(number)
        space[name] = torch.as_tensor(value)
    exec("\n".join(lines), space)
    return np.asarray(space["x"].numpy())


def pooled(values: Array, kind: str, window: int) -> Array:
    """The maximum or the mean of each window of a row."""
    windows = values[:, : values.shape[1] // window * window].reshape(values.shape[0], -1, window)
    return np.asarray(windows.max(axis=2) if kind == "max_pool1d" else windows.mean(axis=2))


def reduced(values: Array, kind: str, columns: int) -> Array:
    """One value a row, of which a sum is as large as that of `columns` values."""
    if kind in ("max", "min"):
        return np.asarray(values.max(axis=1) if kind == "max" else values.min(axis=1))
    if kind == "logsumexp":
        return np.asarray(np.log(np.exp(values).mean(axis=1)) + np.log(columns))
    return np.asarray(values.mean(axis=1) * (columns if kind == "sum" else 1))


def varies(values: Array) -> bool:
    """True if nothing overflows, and few rows share a value."""
    finite = bool(np.all(np.abs(values) < _LARGEST_SUM))
    return finite and len(np.unique(values)) > values.size // 2 and bool(values.std() > _LEAST_STD)


def worth_computing(values: Array) -> bool:
    """True if nothing overflows and the result varies."""
    return bool(np.all(np.abs(values) < _LARGEST_VALUE) and values.std() > _SMALLEST_SPREAD)


def differ(values: Array, others: Array) -> bool:
    """True if so many values differ that no tolerance takes one for the other."""
    close = np.abs(values - others) <= _VISIBLE * (1.0 + np.abs(values))
    return bool(np.mean(~close) > _VISIBLE_SHARE)
