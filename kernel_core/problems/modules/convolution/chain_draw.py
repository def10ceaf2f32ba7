"""Draws of operator chains that are legal and keep their values alive."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kernel_core.problems.modules.convolution.tail_ops import (
    ELEMENTWISE,
    Kind,
    Op,
    draw_channel,
    draw_norm,
    draw_one_value,
    draw_pool,
    draw_reduction,
    draw_residual,
    draw_second,
    draw_softmax,
    draw_trivial,
)
from kernel_core.problems.modules.convolution.tail_pointwise import draw_pointwise
from kernel_core.problems.modules.convolution.tail_values import effect, healthy

_NORMS: tuple[Kind, ...] = (
    "group_norm",
    "group_norm",
    "batch_norm",
    "batch_norm",
    "instance_norm",
    "layer_norm",
)
_LEAST_EFFECT = 0.03
_MOST_CORES = 3
_MOST_POOLS = 2
_MOST_RESIDUALS = 3
_KEPT_NAMES = ("identity", "original_x", "residual", "conv_out")


@dataclass(frozen=True)
class Chain:
    """The operators behind a convolution."""

    ops: tuple[Op, ...]


@dataclass(frozen=True)
class _Shape:
    """The axes that a tensor still has."""

    channels: bool = True
    space: bool = True
    depth: bool = True
    named: bool = True
    """Whether the axes are still (N, C, …) in full number."""

    own: bool = True
    """Whether the convolution's result is at hand in the same launch: no core operator yet but one norm."""

    @property
    def allows_core(self) -> bool:
        """Whether a reduction, softmax, norm or pool can follow."""
        return (self.named or self.channels) and (self.space or (self.named and self.channels))


def draw_chain(rng: random.Random, family: str, rank: int) -> Chain:
    """A chain of the family's kind; its values do not collapse in a model of it."""
    while True:
        ops = _drawn(rng, family, rank)
        functions = [op.value for op in ops]
        if not healthy(functions):
            continue
        if (
            family == "conv_elementwise"
            and max(effect(functions, k) for k in range(len(ops))) < _LEAST_EFFECT
        ):
            continue
        return Chain(tuple(ops))


def _drawn(rng: random.Random, family: str, rank: int) -> list[Op]:
    length = rng.choices((2, 3, 4, 5), (25, 35, 25, 15))[0]
    first_core = rng.randrange(min(length, 3))
    taken = {"in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "x"}
    taken |= {
        "n",
        "c",
        "s",
        "v",
        "raw",
        "count",
        *_KEPT_NAMES,
        "conv",
        "conv_transpose",
        "layer",
        f"conv{rank}d",
        f"conv_transpose{rank}d",
    }
    shape = _Shape()
    kept = rng.choice(_KEPT_NAMES)
    ops: list[Op] = []
    cores = 0
    while len(ops) < length:
        last = len(ops) == length - 1
        behind_pool = bool(ops) and ops[-1].kind == "pool"
        wants_core = family != "conv_elementwise" and (
            len(ops) == first_core or (cores > 0 and len(ops) > first_core and rng.random() < 0.3)
        )
        wants_core = wants_core or (behind_pool and cores == 1 and rng.random() < 0.3)
        if wants_core and shape.named and not shape.space and rng.random() < 0.3:
            op = _trivial(rng, shape, rank)
        elif wants_core and cores < _MOST_CORES and shape.allows_core:
            kind = _core_kind(rng, family if cores == 0 else rng.choice(_FAMILIES), shape, last)
            kind = "pool" if behind_pool and shape.named and rng.random() < 0.7 else kind
            pools = sum(one.kind == "pool" for one in ops)
            kind = "reduce_space" if kind == "pool" and (not shape.depth or pools == _MOST_POOLS) else kind
            op = _core(rng, kind, taken, rank, last)
            cores += 1
            shape = _after(shape, op, cores)
        else:
            op = _elementwise(rng, shape, ops, taken, rank, kept)
        if ops and op.operator == ops[-1].operator and op.kind in ELEMENTWISE:
            continue
        ops.append(op)
    return ops


_FAMILIES = ("conv_norm", "conv_reduce", "conv_reduce", "conv_pool")


def _core_kind(rng: random.Random, family: str, shape: _Shape, last: bool) -> Kind:
    if not shape.named:
        return rng.choice(("softmax", "reduce_channels"))
    if not shape.space:
        return rng.choice(("reduce_channels", "reduce_channels", "softmax"))
    if family == "conv_norm" and shape.channels and shape.own:
        return rng.choice(_NORMS)
    if family == "conv_pool":
        return "pool"
    kinds: list[Kind] = ["reduce_space"]
    if shape.channels:
        kinds += ["reduce_channels", "reduce_channels", "softmax"]
    if shape.depth:
        kinds.append("reduce_depth")
    if last:
        kinds.append("reduce_sample")
    return rng.choice(kinds)


def _core(rng: random.Random, kind: Kind, taken: set[str], rank: int, last: bool) -> Op:
    if kind in _NORMS:
        kind = "instance_norm" if kind == "layer_norm" and "norm_size" in taken else kind
        return draw_norm(rng, taken, rank, kind)
    if kind == "pool":
        return draw_pool(rng, taken, rank)
    if kind == "softmax":
        return draw_softmax(rng, taken, rank)
    return draw_reduction(rng, taken, rank, kind, last)


def _trivial(rng: random.Random, shape: _Shape, rank: int) -> Op:
    """A second reduction of axes that one before has left with one entry."""
    space = ", ".join(str(2 + axis) for axis in range(rank))
    if not shape.channels and rng.random() < 0.5:
        return draw_trivial(rng, "1", ("sum", "mean", "max", "min", "logsumexp"))
    return draw_trivial(rng, rng.choice((f"({space})", f"[{space}]")), ("mean", "mean", "sum"))


def _elementwise(
    rng: random.Random, shape: _Shape, ops: list[Op], taken: set[str], rank: int, kept: str
) -> Op:
    residuals = sum(op.kind == "residual" for op in ops)
    if shape.own and ops and residuals < _MOST_RESIDUALS and rng.random() < (0.3 if residuals else 0.12):
        return draw_residual(rng, kept)
    if shape.own and "second" not in [op.kind for op in ops] and rng.random() < 0.08:
        return draw_second(rng, taken)
    if shape.channels and shape.named and rng.random() < 0.3:
        return draw_channel(rng, taken, rank)
    if shape.named and rng.random() < 0.05:
        return draw_one_value(rng, taken, rank)
    return draw_pointwise(rng, taken)


def _after(shape: _Shape, op: Op, cores: int) -> _Shape:
    if op.kind in _NORMS:
        return replace(shape, own=shape.own and cores == 1)
    if op.kind == "softmax":
        return replace(shape, own=False)
    return _Shape(
        channels=shape.channels and op.kind not in ("reduce_channels", "reduce_sample"),
        space=shape.space and op.kind not in ("reduce_space", "reduce_sample"),
        depth=shape.depth and op.kind != "reduce_depth",
        named=shape.named and op.keep,
        own=False,
    )
