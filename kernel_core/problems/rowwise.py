"""Steps that look along a row: softmax, norms, scans and reductions to one number a row."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from kernel_core.problems.ops import binary, load_line
from kernel_core.problems.steps import PROBE_BLOCK, PROBE_COLS, PROBE_MASK, Array, Rival, Step, Value

_MINUS_INFINITY = 'float("-inf")'


def softmax(v: str, dim: int, *, masked: bool = True) -> Step:
    """Softmax along the row. Without the mask the padding lanes join the sum."""

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        x = np.where(PROBE_MASK, tile, -np.inf) if masked else tile
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))

    exponentials = (*_where(v, masked), f"{v} = tl.exp({v} - tl.max({v}, axis=0))")
    tile = (*exponentials, f"{v} = {v} / tl.sum({v}, axis=0)")
    unnormalised = Step("softmax", "softmax", (), exponentials, _exponentials)
    rivals: tuple[Rival, ...] = (
        lambda rng: ("missing_mask", softmax(v, dim, masked=False)),
        lambda rng: ("wrong_reduction", unnormalised),
    )
    return _along_row("softmax", f"{v} = torch.softmax({v}, dim={dim})", tile, value, rivals)


def _exponentials(tile: Array, arguments: Mapping[str, Array]) -> Array:
    return np.asarray(np.exp(tile - np.where(PROBE_MASK, tile, -np.inf).max(axis=1, keepdims=True)))


def log_softmax(v: str, dim: int, *, masked: bool = True) -> Step:
    """Logarithm of softmax along the row."""

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        x = np.where(PROBE_MASK, tile, -np.inf) if masked else tile
        x = x - x.max(axis=1, keepdims=True)
        return np.asarray(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))

    def wrong_sign(rng: random.Random) -> tuple[str, Step]:
        step = log_softmax(v, dim)
        lines = (*step.tile[:-1], step.tile[-1].replace(f"{v} - tl.log", f"{v} + tl.log"))
        return "wrong_op", Step("log_softmax", step.word, (), lines, lambda tile, arguments: -tile)

    tile = (
        *_where(v, masked),
        f"{v} = {v} - tl.max({v}, axis=0)",
        f"{v} = {v} - tl.log(tl.sum(tl.exp({v}), axis=0))",
    )
    rivals: tuple[Rival, ...] = (
        lambda rng: ("missing_mask", log_softmax(v, dim, masked=False)),
        wrong_sign,
    )
    return _along_row("log_softmax", f"{v} = torch.log_softmax({v}, dim={dim})", tile, value, rivals)


def standardise(v: str, torch: str, word: str, *, masked: bool = True, over: str = "cols") -> Step:
    """Zero mean and unit variance along the row (layer, group and instance norm), epsilon 1e-5."""

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        count = PROBE_COLS if over == "cols" else PROBE_BLOCK
        x = np.where(PROBE_MASK, tile, 0.0)
        x = x - x.sum(axis=1, keepdims=True) / count
        x = np.where(PROBE_MASK, x, 0.0) if masked else x
        return np.asarray(x / np.sqrt((x * x).sum(axis=1, keepdims=True) / count + 1e-5))

    centred = f"tl.where(mask, {v} - mean, 0.0)" if masked else f"{v} - mean"
    tile = (
        f"mean = tl.sum(tl.where(mask, {v}, 0.0), axis=0) / {over}",
        f"{v} = {centred}",
        f"{v} = {v} / tl.sqrt(tl.sum({v} * {v}, axis=0) / {over} + 1e-5)",
    )
    rivals: tuple[Rival, ...] = (
        lambda rng: ("missing_mask", standardise(v, torch, word, masked=False)),
        lambda rng: ("wrong_count", standardise(v, torch, word, over="BLOCK")),
    )
    return _along_row(word, torch, tile, value, rivals if masked and over == "cols" else ())


def layer_norm(v: str, weight: str, bias: str, *, parameter: bool) -> tuple[Step, Step]:
    """Layer norm over the last axis: the norm, then its weight and bias (one operation in PyTorch)."""
    owner = "self." if parameter else ""
    torch = f"{v} = F.layer_norm({v}, {v}.shape[-1:], {owner}{weight}, {owner}{bias})"
    return standardise(v, torch, "layer_norm"), _affine(v, weight, bias)


def _affine(v: str, weight: str, bias: str) -> Step:
    return Step(
        kind="affine",
        word=f"* {weight} + {bias}",
        torch=(),
        tile=(load_line(weight, "vector"), load_line(bias, "vector"), f"{v} = {v} * {weight} + {bias}"),
        value=lambda x, arguments: x * arguments[weight] + arguments[bias],
        rivals=(lambda rng: ("wrong_op", binary("*", v, weight, "vector")),),
    )


def rms_norm(v: str, dim: int, epsilon: str, *, over: str = "cols", masked: bool = True) -> Step:
    """`v / sqrt(mean(v²) + epsilon)` along the row."""

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        count = PROBE_COLS if over == "cols" else PROBE_BLOCK
        x = np.where(PROBE_MASK, tile, 0.0) if masked else tile
        return np.asarray(x / np.sqrt((x * x).sum(axis=1, keepdims=True) / count + float(epsilon)))

    torch = f"{v} = {v} / torch.sqrt(torch.mean({v} * {v}, dim={dim}, keepdim=True) + {epsilon})"
    tile = (
        *_where(v, masked, "0.0"),
        f"{v} = {v} / tl.sqrt(tl.sum({v} * {v}, axis=0) / {over} + {epsilon})",
    )
    rivals: tuple[Rival, ...] = (
        lambda rng: ("missing_mask", rms_norm(v, dim, epsilon, masked=False)),
        lambda rng: ("wrong_count", rms_norm(v, dim, epsilon, over="BLOCK")),
    )
    return _along_row("rms_norm", torch, tile, value, rivals if masked and over == "cols" else ())


def cumsum(v: str, dim: int, *, reverse: bool = False) -> Step:
    """Running sum along the row."""

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        x = np.where(PROBE_MASK, tile, 0.0)
        return np.asarray(np.cumsum(x[:, ::-1], axis=1)[:, ::-1] if reverse else np.cumsum(x, axis=1))

    direction = ", reverse=True" if reverse else ""
    return Step(
        kind="cumsum",
        word="cumsum",
        torch=(f"{v} = torch.cumsum({v}, dim={dim})",),
        tile=(f"{v} = tl.cumsum({v}, axis=0{direction})",),
        value=value,
        rivals=() if reverse else (lambda rng: ("wrong_reduction", cumsum(v, dim, reverse=True)),),
    )


class _Reduction(NamedTuple):
    """A reduction in Triton and in numpy."""

    triton: str
    padding: str
    """Value of the padding lanes that leaves the result alone."""
    function: Callable[..., Array]
    rival: str
    ending: str = ""


_REDUCTIONS = {
    "sum": _Reduction("tl.sum", "0.0", np.sum, "mean"),
    "mean": _Reduction("tl.sum", "0.0", np.mean, "sum", " / cols"),
    "amax": _Reduction("tl.max", _MINUS_INFINITY, np.max, "amin"),
    "amin": _Reduction("tl.min", 'float("inf")', np.min, "amax"),
}
REDUCTION_NAMES = tuple(_REDUCTIONS)


def reduction(name: str, v: str, dim: int, *, masked: bool = True) -> Step:
    """One number a row. Later steps work on that number."""
    kind = _REDUCTIONS[name]
    lanes = f"tl.where(mask, {v}, {kind.padding})" if masked else v

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        lanes = tile[:, :PROBE_COLS] if masked else tile
        scale = lanes.shape[1] / PROBE_COLS if name == "mean" else 1.0
        return np.asarray(kind.function(lanes, axis=1, keepdims=True) * scale)

    rivals: tuple[Rival, ...] = (
        lambda rng: ("wrong_reduction", reduction(kind.rival, v, dim)),
        lambda rng: ("missing_mask", reduction(name, v, dim, masked=False)),
    )
    return Step(
        kind=name,
        word=f"{name} of the row",
        torch=(f"{v} = torch.{name}({v}, dim={dim})",),
        tile=(f"{v} = {kind.triton}({lanes}, axis=0){kind.ending}",),
        value=value,
        rivals=rivals if masked else (),
        must_change=False,
    )


def _where(v: str, masked: bool, padding: str = _MINUS_INFINITY) -> tuple[str, ...]:
    return (f"{v} = tl.where(mask, {v}, {padding})",) if masked else ()


def _along_row(kind: str, torch: str, tile: tuple[str, ...], value: Value, rivals: tuple[Rival, ...]) -> Step:
    """A step that may change little: softmax of a row that is one already, say."""
    return Step(kind, kind, (torch,), tile, value, rivals, must_change=False)
