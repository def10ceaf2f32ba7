"""Families of exactly one activation, as a layer, as a function, or written out by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.matmul.shapes import draw_shape
from kernel_core.problems.modules.pointwise import ACTIVATIONS, Pointwise, pointwise
from kernel_core.problems.modules.steps import Step, is_visible
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import dims_of

_DOCS = (
    "Applies {name} to every element.",
    "Elementwise {name} of a tensor of any shape.",
    "One elementwise operator: {name}.",
    "Computes the {name} of its input.",
)
_TITLES = {
    "relu": "ReLU", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "SiLU", "swish": "Swish", "gelu": "GELU",
    "gelu_tanh": "GELU (tanh form)", "softplus": "softplus", "softsign": "softsign", "elu": "ELU",
    "selu": "SELU", "hardsigmoid": "hard sigmoid", "hardswish": "hard swish", "leaky_relu": "leaky ReLU",
    "mish": "Mish", "relu6": "ReLU6", "hardtanh": "hard tanh", "logsigmoid": "log-sigmoid",
    "quick_gelu": "GELU (sigmoid form)", "squared_relu": "squared ReLU", "tanhshrink": "tanh shrink",
    "gaussian": "Gaussian", "snake": "snake", "celu": "CELU", "hardshrink": "hard shrink",
    "softshrink": "soft shrink", "abs": "absolute value", "square": "square", "exp": "exponential",
    "sin": "sine", "cos": "cosine", "neg": "negation", "bent_identity": "bent identity",
    "signed_log": "signed logarithm",
}  # fmt: skip
_FORMULAS = (
    ("relu", "torch.clamp(x, min=0.0)"),
    ("relu", "torch.maximum(x, torch.zeros_like(x))"),
    ("relu", "torch.where(x > 0, x, torch.zeros_like(x))"),
    ("sigmoid", "1.0 / (1.0 + torch.exp(-x))"),
    ("swish", "x / (1.0 + torch.exp(-x))"),
    ("swish", "torch.sigmoid(x) * x"),
    ("swish", "gate = torch.sigmoid(x); x * gate"),
    ("gelu", "0.5 * x * (1.0 + torch.erf(x / 2.0 ** 0.5))"),
    ("gelu", "cdf = 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)); x * cdf"),
    ("gelu_tanh", "0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))"),
    ("gelu_tanh", "inner = 0.7978845608 * (x + 0.044715 * x * x * x); 0.5 * x * (1.0 + torch.tanh(inner))"),
    ("softplus", "torch.clamp(x, min=0.0) + torch.log1p(torch.exp(-torch.abs(x)))"),
    ("softsign", "x / (1 + torch.abs(x))"),
    ("softsign", "x / (x.abs() + 1.0)"),
    ("hardsigmoid", "torch.clamp(x / 6.0 + 0.5, 0.0, 1.0)"),
    ("hardsigmoid", "F.relu6(x + 3.0) / 6.0"),
    ("hardswish", "x * F.relu6(x + 3.0) / 6.0"),
    ("hardtanh", "torch.clamp(x, min=-1.0, max=1.0)"),
    ("elu", "torch.where(x > 0, x, torch.exp(x) - 1.0)"),
    ("mish", "x * torch.tanh(F.softplus(x))"),
    ("logsigmoid", "-F.softplus(-x)"),
    ("selu", "y = torch.where(x > 0, x, 1.6732632423543772 * (torch.exp(x) - 1.0)); 1.0507009873554805 * y"),
    ("leaky_relu", "torch.where(x > 0, x, 0.1 * x)"),
    ("leaky_relu", "torch.maximum(x, 0.2 * x)"),
    ("quick_gelu", "x * torch.sigmoid(1.702 * x)"),
    ("squared_relu", "torch.relu(x) ** 2"),
    ("tanhshrink", "x - torch.tanh(x)"),
    ("gaussian", "torch.exp(-x * x)"),
    ("snake", "x + torch.sin(x) ** 2"),
    ("bent_identity", "(torch.sqrt(x * x + 1.0) - 1.0) / 2.0 + x"),
    ("signed_log", "torch.sign(x) * torch.log1p(torch.abs(x))"),
)
"""The operator, and lines of which the last is an expression."""


@dataclass(frozen=True)
class _Configured:
    """An activation with numbers of the constructor; `torch` is over `self.NAME`."""

    operator: str
    numbers: tuple[tuple[str, tuple[str, ...]], ...]
    torch: str
    layer: str


_CONFIGURED = (
    _Configured(
        "leaky_relu", (("negative_slope", ("0.01", "0.1", "0.2", "0.05")),),
        "F.leaky_relu(x, negative_slope=self.negative_slope)", "nn.LeakyReLU(negative_slope)",
    ),
    _Configured(
        "elu", (("alpha", ("1.0", "0.5", "1.5", "2.0")),), "F.elu(x, alpha=self.alpha)", "nn.ELU(alpha=alpha)"
    ),
    _Configured(
        "celu", (("alpha", ("1.5", "0.5", "2.0")),), "F.celu(x, alpha=self.alpha)", "nn.CELU(alpha)"
    ),
    _Configured(
        "hardtanh", (("min_val", ("-1.0", "-2.0", "-0.5")), ("max_val", ("1.0", "2.0", "0.5"))),
        "F.hardtanh(x, min_val=self.min_val, max_val=self.max_val)",
        "nn.Hardtanh(min_val=min_val, max_val=max_val)",
    ),
    _Configured(
        "softplus", (("beta", ("2.0", "0.5", "1.5")),),
        "F.softplus(x, beta=self.beta)", "nn.Softplus(beta=beta)",
    ),
    _Configured(
        "softshrink", (("lambd", ("0.5", "0.3", "0.1")),),
        "F.softshrink(x, self.lambd)", "nn.Softshrink(lambd)",
    ),
    _Configured(
        "hardshrink", (("lambd", ("0.5", "0.3", "0.2")),),
        "F.hardshrink(x, self.lambd)", "nn.Hardshrink(lambd)",
    ),
)  # fmt: skip


def activation(rng: random.Random) -> Draft:
    """One activation as torch's layer or function, over a tensor of one to four dimensions."""
    return _draft(_configured(rng) if rng.random() < 0.3 else _plain(rng), rng)


def activation_formula(rng: random.Random) -> Draft:
    """One activation that `forward` writes out with simpler operators."""
    operator, text = rng.choice(_FORMULAS)
    *lines, last = text.split("; ")
    return _draft(Step(operator, (*lines, f"x = {last}")), rng)


def _draft(step: Step, rng: random.Random) -> Draft:
    sizes, style = draw_shape(rng), draw_style(rng)
    is_uniform = rng.random() < 0.5 and is_visible([step], uniform=True)
    *lines, last = step.torch
    return Module(
        doc=rng.choice(_DOCS).format(name=_TITLES[step.operator]),
        init_args=step.init_args,
        init_lines=step.init_lines,
        forward_lines=(*lines, f"return {last.removeprefix('x = ')}"),
        sizes=sizes,
        inputs=(f"torch.{'rand' if is_uniform else 'randn'}({dims_of(sizes)})",),
        init_inputs=tuple(name for name, _ in step.constants),
        constants=step.constants,
    ).draft((step.operator,), style)


def _plain(rng: random.Random) -> Step:
    """Torch's function or layer with what it takes by default."""
    names = ACTIVATIONS if rng.random() < 0.85 else ("abs", "square", "exp", "sin", "cos", "neg")
    drawn = pointwise(rng.choice(names), rng)
    value = f"x = {drawn.torch.format(v='x')}"
    if drawn.layer and rng.random() < 0.35:
        attribute = rng.choice((drawn.operator, "activation", "act"))
        init_line = f"self.{attribute} = {drawn.layer}"
        return Step(drawn.operator, (f"x = self.{attribute}(x)",), value, init_lines=(init_line,))
    return Step(drawn.operator, (f"x = {_function(drawn, rng)}",), value)


def _function(drawn: Pointwise, rng: random.Random) -> str:
    text = drawn.torch.format(v="x")
    if drawn.operator == "relu":
        return rng.choice((text, "F.relu(x)", "x.relu()", "torch.nn.functional.relu(x)"))
    if drawn.operator in ("tanh", "sigmoid") and rng.random() < 0.3:
        return f"x.{drawn.operator}()"
    return text.replace("F.", "torch.nn.functional.") if rng.random() < 0.4 else text


def _configured(rng: random.Random) -> Step:
    """An activation with numbers from the constructor, kept as attributes or in a layer."""
    kind = rng.choices(_CONFIGURED, (5, 5, 2, 4, 2, 1, 1))[0]
    values = {name: rng.choice(choices) for name, choices in kind.numbers}
    with_defaults = rng.random() < 0.5
    as_layer = rng.random() < 0.4
    value = kind.torch
    for name, text in values.items():
        value = value.replace(f"self.{name}", text)
    step = Step(
        kind.operator,
        (f"x = {kind.torch}",),
        f"x = {value}",
        init_args=tuple(f"{name}={text}" if with_defaults else name for name, text in values.items()),
        init_lines=tuple(f"self.{name} = {name}" for name in values),
        constants=() if with_defaults else tuple(values.items()),
    )
    if as_layer:
        return replace(step, torch=("x = self.act(x)",), init_lines=(f"self.act = {kind.layer}",))
    return step
