"""Draws of operator chains that are legal and keep their values alive."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kernel_core.problems.modules.convolution import tail_ops
from kernel_core.problems.modules.convolution.tail_ops import ELEMENTWISE, Kind, Op
from kernel_core.problems.modules.convolution.tail_pointwise import draw_pointwise, draw_pool
from kernel_core.problems.modules.convolution.tail_values import effect, healthy

_NORMS: tuple[Kind, ...] = (
    "group_norm",
    "group_norm",
    "batch_norm",
    "batch_norm",
    "instance_norm",
    "layer_norm",
)
_SAME_SHAPE: tuple[Kind, ...] = (*_NORMS, "softmax", "softmax_space", "center_space")
_LEAST_EFFECT = 0.03
_MOST_CORES = 3
_MOST_POOLS = 2
_POOL_FIRST = 0.09
"""Share of chains with a pool before the convolution."""


@dataclass(frozen=True)
class Chain:
    """The operators behind a convolution, and at times a pool before it."""

    ops: tuple[Op, ...]
    front: Op | None = None

    @property
    def all_ops(self) -> tuple[Op, ...]:
        """All in the order of `forward`, but for the convolution."""
        return (*([self.front] if self.front else []), *self.ops)


@dataclass(frozen=True)
class _Shape:
    """The axes that a tensor still has."""

    channels: bool = True
    space: bool = True
    depth: bool = True
    named: bool = True
    """True if the axes are still (N, C, …) in full number."""
    own: bool = True
    """True if no core operator but one norm has changed the convolution's shape."""
    kept: Op | None = None
    """A value of the same shape that a residual can use."""

    @property
    def allows_core(self) -> bool:
        """True if a reduction, softmax, norm or pool can follow."""
        return (self.named or self.channels) and (self.space or (self.named and self.channels))


def draw_chain(rng: random.Random, family: str, rank: int) -> Chain:
    """A chain of the family's kind; its values do not collapse in a model of it."""
    while True:
        taken = _taken_names(rank)
        front = draw_pool(rng, taken, rank) if rng.random() < _POOL_FIRST else None
        ops = _drawn(rng, family, rank, taken)
        functions = [op.value for op in ops]
        if not healthy(functions):
            continue
        if (
            family == "conv_elementwise"
            and max(effect(functions, k) for k in range(len(ops))) < _LEAST_EFFECT
        ):
            continue
        return Chain(tuple(ops), front)


def _taken_names(rank: int) -> set[str]:
    """Names of arguments of the layer and of its attribute."""
    layer = {"in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding"}
    attributes = {"conv", "conv_transpose", "layer", f"conv{rank}d", f"conv_transpose{rank}d"}
    return layer | attributes


def _drawn(rng: random.Random, family: str, rank: int, taken: set[str]) -> list[Op]:
    length = rng.choices((2, 3, 4, 5, 6), (22, 33, 25, 14, 6))[0]
    first_core = rng.randrange(min(length, 3))
    shape = _Shape()
    ops: list[Op] = []
    cores = 0
    while sum(op.kind != "keep" for op in ops) < length:
        done = sum(op.kind != "keep" for op in ops)
        last = done == length - 1
        behind_pool = bool(ops) and ops[-1].kind == "pool"
        wants_core = family != "conv_elementwise" and (
            done == first_core or (cores > 0 and done > first_core and rng.random() < 0.3)
        )
        wants_core = wants_core or (behind_pool and cores == 1 and rng.random() < 0.3)
        wants_core = wants_core or (last and cores > 0 and rng.random() < 0.2)
        if wants_core and shape.named and not shape.space and rng.random() < 0.3:
            op = _trivial(rng, shape, rank)
        elif wants_core and cores < _MOST_CORES and shape.allows_core:
            kind = _core_kind(rng, family if cores == 0 else rng.choice(_FAMILIES), shape, last)
            kind = "pool" if behind_pool and shape.named and rng.random() < 0.6 else kind
            pools = sum(other.kind == "pool" for other in ops)
            kind = "reduce_space" if kind == "pool" and (not shape.depth or pools == _MOST_POOLS) else kind
            closes = last and cores > 0 and shape.channels and shape.depth and rng.random() < 0.4
            kind = rng.choice(("reduce_sample", "reduce_sample", "reduce_space")) if closes else kind
            op = _core(rng, kind, taken, rank, last)
            if ops and op.kind in _NORMS and op.kind == ops[-1].kind:
                continue
            cores += 1
            shape = _after(shape, op, cores)
        else:
            if shape.kept is None and not last and rng.random() < 0.22:
                keep = tail_ops.draw_keep(rng, taken)
                shape = replace(shape, kept=keep)
                ops.append(keep)
            op = _elementwise(rng, shape, ops, taken, rank, last)
        if ops and op.operator == ops[-1].operator and op.kind in ELEMENTWISE:
            continue
        ops.append(op)
        if op.kind == "softmax_space":  # what it gives are shares of a plane: only a factor leaves them apart
            return _used([*ops, tail_ops.draw_channel(rng, taken, rank, "*")] if rng.random() < 0.6 else ops)
    return _used(ops)


def _used(ops: list[Op]) -> list[Op]:
    """The chain without values that are kept and never used."""
    used = {op.attribute for op in ops if op.kind == "residual"}
    return [op for op in ops if op.kind != "keep" or op.attribute in used]


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
    if shape.channels and shape.depth:
        kinds += ["softmax_space", "center_space"]
    if last and shape.channels:
        kinds += ["reduce_sample"] * 4
    return rng.choice(kinds)


def _core(rng: random.Random, kind: Kind, taken: set[str], rank: int, last: bool) -> Op:
    if kind in _NORMS:
        kind = "instance_norm" if kind == "layer_norm" and "norm_size" in taken else kind
        return tail_ops.draw_norm(rng, taken, rank, kind)
    if kind == "pool":
        return draw_pool(rng, taken, rank)
    if kind == "softmax":
        return tail_ops.draw_softmax(rng, taken)
    if kind == "softmax_space":
        return tail_ops.draw_softmax_space(rng, rank)
    if kind == "center_space":
        return tail_ops.draw_center(rng, rank)
    return tail_ops.draw_reduction(rng, taken, rank, kind, last)


def _trivial(rng: random.Random, shape: _Shape, rank: int) -> Op:
    """A second reduction of axes that one before has left with one entry."""
    space = ", ".join(str(2 + axis) for axis in range(rank))
    if not shape.channels and rng.random() < 0.5:
        return tail_ops.draw_trivial(rng, "1", ("sum", "mean", "max", "min", "logsumexp"))
    return tail_ops.draw_trivial(rng, rng.choice((f"({space})", f"[{space}]")), ("mean", "mean", "sum"))


def _elementwise(
    rng: random.Random, shape: _Shape, ops: list[Op], taken: set[str], rank: int, last: bool
) -> Op:
    if shape.kept is not None and ops[-1].kind != "keep":
        used = any(op.kind == "residual" for op in ops)
        if (last and not used) or rng.random() < 0.3:
            return tail_ops.draw_residual(rng, shape.kept)
    if shape.own and "second" not in [op.kind for op in ops] and rng.random() < 0.08:
        return tail_ops.draw_second(rng, taken)
    if shape.channels and shape.named and rng.random() < 0.3:
        return tail_ops.draw_channel(rng, taken, rank)
    if shape.named and rng.random() < 0.05:
        return tail_ops.draw_one_value(rng, taken, rank)
    return draw_pointwise(rng, taken)


def _after(shape: _Shape, op: Op, cores: int) -> _Shape:
    kept = shape.kept if op.kind in _SAME_SHAPE and cores == 1 else None
    if op.kind in _SAME_SHAPE:
        own = shape.own and cores == 1 and op.kind in _NORMS
        return replace(shape, own=own, kept=kept)
    return _Shape(
        channels=shape.channels and op.kind not in ("reduce_channels", "reduce_sample"),
        space=shape.space and op.kind not in ("reduce_space", "reduce_sample"),
        depth=shape.depth and op.kind != "reduce_depth",
        named=shape.named and op.keep,
        own=False,
    )
