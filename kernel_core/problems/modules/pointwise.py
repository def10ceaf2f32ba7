"""Elementwise operators of a chain: torch's function and torch's layer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.ops import UNARY, draw_constant


@dataclass(frozen=True)
class Pointwise:
    """One operator with its constant filled in; templates are over `{v}`, the variable."""

    operator: str
    torch: str
    layer: str = ""
    """The constructor of torch's layer, such as `nn.LeakyReLU(0.1)`; empty where none exists."""


_LAYERS = {
    "relu": "nn.ReLU()",
    "sigmoid": "nn.Sigmoid()",
    "tanh": "nn.Tanh()",
    "silu": "nn.SiLU()",
    "gelu": "nn.GELU()",
    "softplus": "nn.Softplus()",
    "softsign": "nn.Softsign()",
    "elu": "nn.ELU()",
    "hardsigmoid": "nn.Hardsigmoid()",
    "hardswish": "nn.Hardswish()",
    "leaky_relu": "nn.LeakyReLU({c})",
}
_OWN = (
    Pointwise("mish", "F.mish({v})", "nn.Mish()"),
    Pointwise("selu", "F.selu({v})", "nn.SELU()"),
    Pointwise("relu6", "F.relu6({v})", "nn.ReLU6()"),
    Pointwise("hardtanh", "F.hardtanh({v})", "nn.Hardtanh()"),
    Pointwise("gelu_tanh", "F.gelu({v}, approximate='tanh')", "nn.GELU(approximate='tanh')"),
    Pointwise("logsigmoid", "F.logsigmoid({v})", "nn.LogSigmoid()"),
    Pointwise("swish", "{v} * torch.sigmoid({v})"),
)
_DEFAULT_LEAKY_RELU = Pointwise("leaky_relu", "F.leaky_relu({v})", "nn.LeakyReLU()")
_BY_NAME = {form.operator: form for form in _OWN}

ACTIVATIONS: tuple[str, ...] = (
    "relu", "sigmoid", "tanh", "silu", "gelu", "softplus", "softsign", "elu", "hardsigmoid", "hardswish",
    "leaky_relu", "mish", "selu", "relu6", "hardtanh", "gelu_tanh", "logsigmoid", "swish",
)  # fmt: skip
SCALINGS: tuple[str, ...] = ("mul", "div", "add", "sub", "clamp")
ALL: tuple[str, ...] = (*ACTIVATIONS, *SCALINGS, "abs", "square", "exp", "sin", "cos", "rsub", "neg")


def pointwise(name: str, rng: random.Random) -> Pointwise:
    """The operator with a drawn constant."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name == "leaky_relu" and rng.random() < 0.5:
        return _DEFAULT_LEAKY_RELU
    op = UNARY[name]
    c = draw_constant(op, rng)
    return Pointwise(
        operator=name,
        torch=op.torch.replace("{c}", c),
        layer=_LAYERS.get(name, "").replace("{c}", c),
    )


def draw_chain(rng: random.Random, length: int, names: Sequence[str] = ALL) -> tuple[Pointwise, ...]:
    """Operators in a row, no two neighbours alike and no second `exp`, which would overflow."""
    chain: list[Pointwise] = []
    while len(chain) < length:
        drawn = pointwise(rng.choice(names), rng)
        if chain and drawn.operator == chain[-1].operator:
            continue
        if drawn.operator == "exp" and any(other.operator in ("exp", "square") for other in chain):
            continue
        chain.append(drawn)
    return tuple(chain)
