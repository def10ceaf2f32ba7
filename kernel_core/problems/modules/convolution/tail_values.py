"""A model of a chain's values on a sample of (channels, pixels): a drawn chain must not collapse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
CHANNELS, PIXELS = 6, 64
_VECTOR = np.array([0.9, -0.7, 0.3, 1.4, -1.1, 0.5])[:, None]
_LEAST_SPREAD = 0.02
_LARGEST = 200.0
_LEAST_VARIETY = 0.5


def by_channel(sign: str, x: Values) -> Values:
    """Arithmetic with one number for each channel."""
    vector = _VECTOR[: len(x)]
    return x + vector if sign == "+" else x - vector if sign == "-" else x * vector


def standardised(kind: str) -> Callable[[Values], Values]:
    """Zero mean and unit variance: over all values, or for each channel alone."""
    axis = 1 if kind in ("instance_norm", "batch_norm") else None
    return lambda x: np.asarray(
        (x - x.mean(axis=axis, keepdims=True)) / (x.std(axis=axis, keepdims=True) + 1e-9)
    )


def softmax(x: Values) -> Values:
    """Softmax over channels."""
    e = np.exp(x - x.max(axis=0, keepdims=True))
    return np.asarray(e / e.sum(axis=0, keepdims=True))


def softmax_space(x: Values) -> Values:
    """Softmax over pixels, as a multiple of the mean share: what follows may only scale it."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.mean(axis=1, keepdims=True))


def centred(x: Values) -> Values:
    """The difference to a channel's mean."""
    return np.asarray(x - x.mean(axis=1, keepdims=True))


def reduced(detail: str) -> Callable[[Values], Values]:
    """A reduction over channels."""
    if detail == "logsumexp":
        return lambda x: np.asarray(np.log(np.exp(x).sum(axis=0, keepdims=True)))
    return lambda x: np.asarray(getattr(np, detail)(x, axis=0, keepdims=True))


def pooled(detail: str) -> Callable[[Values], Values]:
    """A reduction of neighbouring pixels."""
    function = getattr(np, {"avg": "mean"}.get(detail, detail))
    return lambda x: np.asarray(function(x.reshape(len(x), -1, 2), axis=2)) if x.shape[1] > 1 else x


def summed_space(kind: str, detail: str) -> Callable[[Values], Values]:
    """A reduction of all pixels, or of all values of a sample; sums are as large as those of an image."""
    if detail in ("amax", "amin"):
        axes = None if kind == "reduce_sample" else 1
        return lambda x: np.asarray(getattr(np, detail)(x, axis=axes, keepdims=True))
    factor = 1.0 if detail == "mean" else 40.0
    if kind == "reduce_sample":
        return lambda x: np.full((1, 1), float(x.mean()) * factor)
    return lambda x: np.asarray(x.mean(axis=1, keepdims=True) * factor)


def traced(functions: Sequence[Callable[[Values], Values]], skip: int = -1, scale: float = 1.0) -> Values:
    """The chain's result on a fixed sample of the given scale, without the function at `skip`."""
    x = scale * np.random.default_rng(5).normal(0.05, 0.6, (CHANNELS, PIXELS))
    with np.errstate(all="ignore"):
        for position, function in enumerate(functions):
            if position != skip:
                x = function(x)
    return x


def healthy(functions: Sequence[Callable[[Values], Values]]) -> bool:
    """True if the result is finite, of usual size, and varies as far as it has more than one value."""
    x = traced(functions)
    if not np.isfinite(x).all() or np.abs(x).max() > _LARGEST:
        return False
    if x.size <= CHANNELS and np.abs(x - traced(functions, scale=1.5)).max() < _LEAST_SPREAD:
        return False
    if x.size == 1:
        return True
    return bool(x.std() > _LEAST_SPREAD and len(np.unique(np.round(x, 6))) > _LEAST_VARIETY * x.size)


def effect(functions: Sequence[Callable[[Values], Values]], position: int) -> float:
    """Mean change of the result when one elementwise function is left out."""
    whole, without = traced(functions), traced(functions, position)
    return float(np.abs(whole - without).mean()) if whole.shape == without.shape else 0.0
