"""Steps as people write them behind a linear layer: activations, constants, parameters, residuals."""

from __future__ import annotations

import random
from dataclasses import replace

from kernel_core.problems.modules.configured import CONFIGURABLE, NAMES, draw_configured
from kernel_core.problems.modules.pointwise import Pointwise, pointwise
from kernel_core.problems.modules.steps import Step
from kernel_core.problems.modules.style import unused

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_NUMBER_NAMES = {
    "add": ("add_value", "shift", "offset"),
    "sub": ("subtract_value", "margin", "shift"),
    "mul": ("scaling_factor", "multiplier", "scale_factor", "factor", "multiply_value"),
    "div": ("divisor", "divide_value", "temperature"),
}
_NUMBERS = {
    "add": ("0.5", "1.0", "0.25", "1.5"),
    "sub": ("0.5", "1.0", "0.2", "1.5"),
    "mul": ("2.0", "0.5", "1.5", "3.0", "0.75"),
    "div": ("2.0", "0.5", "1.5", "4.0"),
}
_VECTOR_NAMES = {
    "add": ("bias", "add_bias", "shift"),
    "sub": ("subtract", "center", "offset"),
    "mul": ("scale", "gain", "multiply_weight", "gamma"),
}
_WORDS = {"add": "addition", "sub": "subtraction", "mul": "scaling", "div": "division"}


def activation(rng: random.Random, taken: set[str]) -> Step:
    """An activation as a function of torch or as a layer of the module."""
    name = rng.choice(NAMES)
    if name in CONFIGURABLE:
        return draw_configured(name, rng, taken, (name, "activation", "act"))
    drawn = pointwise(name, rng)
    as_layer = bool(drawn.layer) and rng.random() < 0.35
    if not as_layer:
        return Step(drawn.operator, (f"x = {_function(drawn, rng)}",))
    name = unused((drawn.operator, "activation", "act"), rng, taken)
    value = f"x = {drawn.torch.format(v='x')}"
    return Step(drawn.operator, (f"x = self.{name}(x)",), value, init_lines=(f"self.{name} = {drawn.layer}",))


def _function(drawn: Pointwise, rng: random.Random) -> str:
    text = drawn.torch.format(v="x")
    if drawn.operator == "swish" and rng.random() < 0.5:
        return "torch.sigmoid(x) * x"
    return text.replace("F.", "torch.nn.functional.") if rng.random() < 0.4 else text


def number(rng: random.Random, taken: set[str]) -> Step:
    """Arithmetic with a number: one that the constructor is given, or one in the text."""
    kind = rng.choice(("mul", "mul", "div", "add", "sub"))
    sign, value = _SIGNS[kind], rng.choice(_NUMBERS[kind])
    if rng.random() < 0.3:
        return Step(kind, (f"x = x {sign} {value}",), word=_WORDS[kind])
    name = unused(_NUMBER_NAMES[kind], rng, taken)
    return Step(
        kind,
        (f"x = x {sign} self.{name}",),
        init_args=(name,),
        init_lines=(f"self.{name} = {name}",),
        constants=((name, value),),
        word=_WORDS[kind],
    )


def clamp(rng: random.Random, taken: set[str]) -> Step:
    """A clamp between two numbers, or between attributes and then at times at one side alone."""
    low, high = rng.choice(
        (("-1.0", "1.0"), ("-0.5", "0.5"), ("0.0", "1.0"), ("-2.0", "2.0"), ("-0.5", "1.5"))
    )
    if rng.random() < 0.4:
        written = rng.choice((f"min={low}, max={high}", f"{low}, {high}"))
        return Step("clamp", (f"x = torch.clamp(x, {written})",))
    least = unused(("clamp_min", "min_value", "lower"), rng, taken)
    most = unused(("clamp_max", "max_value", "upper"), rng, taken)
    side = rng.choice(("both", "both", "least", "most"))
    given = {"both": f"self.{least}, self.{most}", "least": f"min=self.{least}", "most": f"max=self.{most}"}
    pairs = [(least, low)] * (side != "most") + [(most, high)] * (side != "least")
    return Step(
        "clamp",
        (f"x = torch.clamp(x, {given[side]})",),
        init_args=tuple(name for name, _ in pairs),
        init_lines=tuple(f"self.{name} = {name}" for name, _ in pairs),
        constants=tuple(pairs),
    )


def vector(rng: random.Random, taken: set[str], length: str) -> Step:
    """Arithmetic with a parameter of one value a column; `length` is the constructor's name of its size."""
    kind = rng.choice(("add", "add", "sub", "mul"))
    name = unused(_VECTOR_NAMES[kind], rng, taken)
    shape, sign = f"{name}_shape", _SIGNS[kind]
    leading = "" if length.startswith("1, ") else "1, "
    form, extent = rng.choice(
        (
            (shape, f"({length},)"),
            (shape, f"({leading}{length})" if leading else f"({length},)"),
            (length, ""),
            (length, ""),
            (f"{leading}{length}", ""),
        )
    )
    return Step(
        kind,
        (f"x = x {sign} self.{name}",),
        init_args=(shape,) if extent else (),
        init_lines=(f"self.{name} = nn.Parameter(torch.randn({form}))",),
        constants=((shape, extent),) if extent else (),
        vectors=(name,),
        word={"add": "bias", "sub": "offset", "mul": "scale"}[kind],
    )


_POINT_NAMES = ("constant", "threshold", "alpha", "beta")


def point(rng: random.Random, taken: set[str]) -> Step:
    """Arithmetic with a parameter of a single value, or the smaller or larger of both."""
    kind = rng.choice(("min", "max", "sub", "mul", "add"))
    name = unused(_POINT_NAMES, rng, taken)
    if kind in ("add", "sub") and rng.random() < 0.4:
        drawn = f"self.{name} = nn.Parameter(torch.randn(1))"
        return replace(_with_point(kind, name), init_lines=(drawn,))
    return _given_point(_with_point(kind, name), name, rng)


def point_twice(rng: random.Random, taken: set[str]) -> list[Step]:
    """Two operators with one parameter of a single value, such as a minimum and a difference."""
    name = unused(_POINT_NAMES, rng, taken)
    first, second = rng.choice((("min", "sub"), ("max", "sub"), ("min", "add"), ("mul", "add")))
    given = _given_point(_with_point(first, name), name, rng)
    return [given, replace(_with_point(second, name), points=())]


def _given_point(step: Step, name: str, rng: random.Random) -> Step:
    return replace(
        step,
        init_args=(name,),
        init_lines=(f"self.{name} = nn.Parameter(torch.tensor({name}))",),
        constants=((name, rng.choice(("0.5", "0.25", "1.5", "0.75"))),),
    )


def _with_point(kind: str, name: str) -> Step:
    if kind in ("min", "max"):
        return Step(kind, (f"x = torch.{kind}(x, self.{name})",), points=(name,), word=f"{kind}imum")
    return Step(
        kind,
        (f"x = x {_SIGNS[kind]} self.{name}",),
        points=(name,),
        word=_WORDS[kind],
    )


def of_one(rng: random.Random) -> Step:
    """A reduction of rows that one before has left with one value: it changes nothing."""
    kind = rng.choice(("sum", "mean", "max", "min", "logsumexp"))
    ending = rng.choice((".values", "[0]")) if kind in ("max", "min") else ""
    return Step(kind, (f"x = torch.{kind}(x, dim=1, keepdim=True){ending}",), word=f"{kind} of one value")


def row_input(rng: random.Random, taken: set[str]) -> Step:
    """Arithmetic with a further input of one value a row."""
    name = unused(("row_scale", "weights", "row_bias"), rng, taken)
    kind = rng.choice(("add", "mul"))
    line = f"x = x {_SIGNS[kind]} {name}"
    return Step(kind, (line,), rows=(name,), word=f"row input `{name}`")


def twice(rng: random.Random, taken: set[str]) -> Step:
    """The variable added to itself, or its product with an activation of itself."""
    if rng.random() < 0.5:
        return Step("add", ("x = x + x",), word="doubling")
    return Step("mul", ("x = x * torch.tanh(x)",), word="product with its tanh")


def residual(rng: random.Random, taken: set[str]) -> tuple[Step, Step]:
    """A copy of the variable, and its addition to a later value, or the product of both."""
    names = ("original", "residual", "identity", "original_x", "skip", "shortcut", "kept")
    name, sign = unused(names, rng, taken), rng.choice("++*")
    copied = rng.choice(("x", "x", "x.clone()", "x.clone().detach()"))
    saved = Step("", (f"{name} = {copied}",))
    line = rng.choice((f"x = x {sign} {name}", f"x = {name} {sign} x"))
    kind = "add" if sign == "+" else "mul"
    return saved, Step(kind, (line,), word="residual")


def second_input(rng: random.Random, taken: set[str]) -> Step:
    """Addition of a further input of the output's shape, or the product with it."""
    name = unused(("y", "z", "skip"), rng, taken)
    kind = rng.choice(("add", "mul"))
    line = f"x = x {_SIGNS[kind]} {name}"
    return Step(kind, (line,), inputs=(name,), word=f"second input `{name}`")
