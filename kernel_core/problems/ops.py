"""Elementwise operations: constants are drawn, and each has a plausible wrong version."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from kernel_core.problems.steps import Array, Step

_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class UnaryOp:
    """`torch` and `triton` are templates over `{v}` (the variable) and `{c}` (the constant)."""

    torch: str
    triton: str
    value: Callable[[Array, float], Array]
    constants: tuple[float, float] | None = None
    """Range the constant is drawn from."""
    word: str = ""
    """Its text in a plan, with `{c}` for the constant; by default the operation's name."""
    rival: str = ""
    """The operation that a mistaken kernel has in its place."""


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


UNARY: dict[str, UnaryOp] = {
    "relu": UnaryOp("torch.relu({v})", "tl.maximum({v}, 0.0)", lambda x, c: np.maximum(x, 0.0), rival="abs"),
    "sigmoid": UnaryOp("torch.sigmoid({v})", "tl.sigmoid({v})", lambda x, c: _sigmoid(x), rival="tanh"),
    "tanh": UnaryOp(
        "torch.tanh({v})", "2.0 * tl.sigmoid(2.0 * {v}) - 1.0", lambda x, c: np.tanh(x), rival="sigmoid"
    ),
    "silu": UnaryOp("F.silu({v})", "{v} * tl.sigmoid({v})", lambda x, c: x * _sigmoid(x), rival="sigmoid"),
    "gelu": UnaryOp(
        "F.gelu({v})",
        "0.5 * {v} * (1.0 + tl.erf({v} * 0.70710678))",
        lambda x, c: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))),
        rival="relu",
    ),
    "exp": UnaryOp("torch.exp({v})", "tl.exp({v})", lambda x, c: np.exp(x), rival="sigmoid"),
    "abs": UnaryOp("torch.abs({v})", "tl.abs({v})", lambda x, c: np.abs(x), rival="relu"),
    "square": UnaryOp("{v} * {v}", "{v} * {v}", lambda x, c: x * x, rival="abs"),
    "neg": UnaryOp("-{v}", "-{v}", lambda x, c: -x, rival="abs"),
    "sin": UnaryOp("torch.sin({v})", "tl.sin({v})", lambda x, c: np.sin(x), rival="cos"),
    "cos": UnaryOp("torch.cos({v})", "tl.cos({v})", lambda x, c: np.cos(x), rival="sin"),
    "softplus": UnaryOp(
        "F.softplus({v})",
        "tl.maximum({v}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({v})))",
        lambda x, c: np.logaddexp(0.0, x),
        rival="relu",
    ),
    "softsign": UnaryOp(
        "F.softsign({v})", "{v} / (1.0 + tl.abs({v}))", lambda x, c: x / (1.0 + np.abs(x)), rival="tanh"
    ),
    "elu": UnaryOp(
        "F.elu({v})",
        "tl.where({v} > 0, {v}, tl.exp({v}) - 1.0)",
        lambda x, c: np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 1.0),
        rival="relu",
    ),
    "hardsigmoid": UnaryOp(
        "F.hardsigmoid({v})",
        "tl.minimum(tl.maximum({v} / 6.0 + 0.5, 0.0), 1.0)",
        lambda x, c: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
        rival="sigmoid",
    ),
    "hardswish": UnaryOp(
        "F.hardswish({v})",
        "{v} * tl.minimum(tl.maximum({v} / 6.0 + 0.5, 0.0), 1.0)",
        lambda x, c: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
        rival="silu",
    ),
    "log1p_abs": UnaryOp(
        "torch.log1p(torch.abs({v}))",
        "tl.log(1.0 + tl.abs({v}))",
        lambda x, c: np.log1p(np.abs(x)),
        rival="abs",
    ),
    "leaky_relu": UnaryOp(
        "F.leaky_relu({v}, {c})",
        "tl.where({v} > 0, {v}, {v} * {c})",
        lambda x, c: np.where(x > 0, x, x * c),
        constants=(0.05, 0.4),
        word="leaky_relu {c}",
    ),
    "clamp": UnaryOp(
        "torch.clamp({v}, -{c}, {c})",
        "tl.minimum(tl.maximum({v}, -{c}), {c})",
        lambda x, c: np.clip(x, -c, c),
        constants=(0.3, 2.0),
        word="clamp {c}",
    ),
    "mul": UnaryOp("{v} * {c}", "{v} * {c}", lambda x, c: x * c, constants=(0.2, 4.0), word="* {c}"),
    "div": UnaryOp("{v} / {c}", "{v} / {c}", lambda x, c: x / c, constants=(0.3, 4.0), word="/ {c}"),
    "add": UnaryOp("{v} + {c}", "{v} + {c}", lambda x, c: x + c, constants=(0.2, 3.0), word="+ {c}"),
    "sub": UnaryOp("{v} - {c}", "{v} - {c}", lambda x, c: x - c, constants=(0.2, 3.0), word="- {c}"),
    "rsub": UnaryOp("{c} - {v}", "{c} - {v}", lambda x, c: c - x, constants=(0.2, 3.0), word="{c} -"),
    "sqrt_abs": UnaryOp(
        "torch.sqrt(torch.abs({v}) + {c})",
        "tl.sqrt(tl.abs({v}) + {c})",
        lambda x, c: np.sqrt(np.abs(x) + c),
        constants=(0.2, 2.0),
        word="sqrt abs + {c}",
    ),
    "inverse_square": UnaryOp(
        "{c} / (1.0 + {v} * {v})",
        "{c} / (1.0 + {v} * {v})",
        lambda x, c: c / (1.0 + x * x),
        constants=(0.5, 4.0),
        word="{c} / (1 + square)",
    ),
}

UNARY_NAMES = tuple(UNARY)
ACTIVATIONS = ("relu", "sigmoid", "tanh", "silu", "gelu", "softplus", "elu", "hardswish", "leaky_relu")


def unary(name: str, v: str, rng: random.Random, constant: str | None = None) -> Step:
    """The operation on variable `v`, with a drawn constant unless one is given."""
    op = UNARY[name]
    c = constant if constant is not None else draw_constant(op, rng)
    number = float(c) if c else 0.0

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        return op.value(tile, number)

    def rival(rival_rng: random.Random) -> tuple[str, Step]:
        if op.constants is None:
            return "wrong_op", unary(op.rival, v, rival_rng)
        other = c
        while abs(float(other) - number) < 0.1 * number:
            other = draw_constant(op, rival_rng)
        return "wrong_constant", unary(name, v, rival_rng, other)

    return Step(
        kind=name,
        word=(op.word or name).format(c=c),
        torch=(f"{v} = {op.torch.format(v=v, c=c)}",),
        tile=(f"{v} = {op.triton.format(v=v, c=c)}",),
        value=value,
        rivals=(rival,),
    )


def draw_constant(op: UnaryOp, rng: random.Random) -> str:
    """A short decimal from the operation's range; empty where it takes none."""
    if op.constants is None:
        return ""
    low, high = op.constants
    return str(round(rng.uniform(low, high), 2 if high < 1.0 or rng.random() < 0.3 else 1) or low)


class _Binary(NamedTuple):
    """An operation on two tensors; `text` is a template over `{v}` and `{a}`, with `@` for the library."""

    kind: str
    text: str
    value: Callable[[Array, Array], Array]
    rival: str
    """Sign of the operation that a mistaken kernel has in its place."""


_BINARY = {
    "+": _Binary("add", "{v} + {a}", np.add, "-"),
    "-": _Binary("sub", "{v} - {a}", np.subtract, "+"),
    "*": _Binary("mul", "{v} * {a}", np.multiply, "+"),
    "maximum": _Binary("maximum", "@.maximum({v}, {a})", np.maximum, "minimum"),
    "minimum": _Binary("minimum", "@.minimum({v}, {a})", np.minimum, "maximum"),
}
BINARY_NAMES = tuple(_BINARY)
BINARY_SIGNS = BINARY_NAMES[:3]

ArgumentShape = Literal["full", "vector"]
_LOADS: dict[ArgumentShape, str] = {
    "full": "{a} = tl.load({a}_ptr + i, mask=mask, other=0.0)",
    "vector": "{a} = tl.load({a}_ptr + j, mask=j < cols, other=0.0)",
}


def load_line(argument: str, shape: ArgumentShape) -> str:
    """The kernel line that loads an argument as large as the tile, or a vector over columns."""
    return _LOADS[shape].format(a=argument)


def binary(
    sign: str, v: str, argument: str, shape: ArgumentShape, *, torch_argument: str = "", load: str = ""
) -> Step:
    """`v sign argument`; the argument is loaded where it is used, by the line `load` if one is given."""
    op = _BINARY[sign]
    in_torch = op.text.replace("@", "torch").format(v=v, a=torch_argument or argument)
    in_tile = op.text.replace("@", "tl").format(v=v, a=argument)

    def value(tile: Array, arguments: Mapping[str, Array]) -> Array:
        return op.value(tile, arguments[argument])

    def rival(rng: random.Random) -> tuple[str, Step]:
        return "wrong_op", binary(op.rival, v, argument, shape, load=load)

    return Step(
        kind=f"{op.kind}_{shape}",
        word=f"{sign} {argument}",
        torch=(f"{v} = {in_torch}",),
        tile=(load or load_line(argument, shape), f"{v} = {in_tile}"),
        value=value,
        rivals=(rival,),
    )
