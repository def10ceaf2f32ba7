"""Formulas over the values of views, as people write them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.pointwise import Pointwise, pointwise
from kernel_core.problems.modules.probe import points, value_of, worth_computing

_UNARY = (
    "relu", "sigmoid", "tanh", "silu", "gelu", "softplus", "softsign", "elu", "hardsigmoid", "hardswish",
    "leaky_relu", "mish", "abs", "sin", "cos", "square", "neg", "clamp", "mul", "add",
)  # fmt: skip
_BINARY: dict[str, str] = {
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "maximum": "torch.maximum({a}, {b})",
    "minimum": "torch.minimum({a}, {b})",
    "distance": "torch.abs({a} - {b})",
    "squared_distance": "({a} - {b}) ** 2",
    "average": "0.5 * ({a} + {b})",
    "damped": "{a} / (1.0 + torch.abs({b}))",
    "length": "torch.sqrt({a} * {a} + {b} * {b} + 1e-6)",
    "larger": "torch.where({a} > {b}, {a}, 0.1 * {b})",
}
_RESULTS = ("z", "result", "mixed", "h", "r", "g")
_TRIES = 200


@dataclass(frozen=True)
class Formula:
    """Lines that compute one value of several."""

    torch: tuple[str, ...]
    """Lines of the reference but the last."""
    result: str
    """The last expression of the reference."""
    operators: tuple[str, ...]


def draw_formula(
    names: Sequence[str],
    rng: random.Random,
    number: str = "",
    ending: str = "",
    *,
    gated: bool = False,
    paired: bool = False,
) -> Formula:
    """A formula over all the names that neither overflows nor collapses.

    `gated` keeps out a product with a function of one value: that is a gated unit, a family held out whole.
    `paired` combines the first with the third and the second with the fourth; a difference of two products
    is kept out, since a rotary embedding has it. With `number` one value is changed by this number. Names
    that the lines assign have the ending, so that two formulas of one problem leave each other alone.
    """
    for _ in range(_TRIES):
        formula = _Drawing(names, rng, ending).formula(gated, paired, number)
        lines = [line.replace("self.", "") for line in (*formula.torch, f"x = {formula.result}")]
        if worth_computing(
            value_of(lines, {**dict.fromkeys(names), **({number: 0.7} if number else {})}, points())
        ):
            return formula
    raise AssertionError(f"no formula over {', '.join(names)} varies")


class _Drawing:
    """One formula while it is drawn, of any value."""

    def __init__(self, names: Sequence[str], rng: random.Random, ending: str) -> None:
        self._names = names
        self._rng = rng
        self._ending = ending
        self._torch: list[str] = []
        self._operators: list[str] = []
        self._texts = {name: name for name in names}

    def formula(self, gated: bool, paired: bool, number: str) -> Formula:
        """A function of some values, operators between all, and perhaps a function of the result."""
        rng = self._rng
        after = rng.random() < 0.4
        changed = [name for name in self._names if rng.random() < 0.35][: 1 if after else 2]
        if number:
            changed = changed[:1] or [rng.choice(self._names)]
        for name in changed:
            self._change(name, _by_number(number, rng) if number else pointwise(rng.choice(_UNARY), rng))
        kinds = [kind for kind in _BINARY if not (gated and changed and kind == "mul")]
        text = self._paired() if paired else self._combined(kinds)
        if after or not self._operators:
            last = pointwise(rng.choice(_UNARY), rng)
            text = _filled(last.torch, v=self._once(text, last.torch, "{v}"))
            self._operators.append(last.operator)
        return Formula(tuple(self._torch), _plain(text), tuple(self._operators))

    def _change(self, name: str, function: Pointwise) -> None:
        """A function of one value."""
        rng = self._rng
        own = f"{name}{self._ending or '_new'}"
        self._operators.append(function.operator)
        if function.torch.count("{v}") > 1 or rng.random() < 0.3:
            self._texts[name] = own if self._ending or name == "weight" else name
            self._torch.append(f"{self._texts[name]} = {function.torch.format(v=name)}")
        else:
            self._texts[name] = _filled(function.torch, v=name)

    def _combined(self, kinds: Sequence[str]) -> str:
        """The values combined from the first to the last."""
        text = self._texts[self._names[0]]
        for name in self._names[1:]:
            kind = self._rng.choice(kinds)
            text = self._joined(kind, text, self._texts[name])
        return text

    def _paired(self) -> str:
        """The same for four values: two pairs, and then their results."""
        kinds = [self._rng.choice(("mul", "mul", *_BINARY)) for _ in range(2)]
        pairs = (self._names[0::2], self._names[1::2])
        left, right = (
            self._joined(kind, self._texts[first], self._texts[second])
            for kind, (first, second) in zip(kinds, pairs, strict=True)
        )
        between = [kind for kind in _BINARY if kind != "sub" or kinds != ["mul", "mul"]]
        kind = self._rng.choice(between)
        return self._joined(kind, left, right)

    def _joined(self, kind: str, first: str, second: str) -> str:
        """Two values under an operator."""
        template = _BINARY[kind]
        left, right = self._once(first, template, "{a}"), self._once(second, template, "{b}")
        self._operators.append(kind)
        return _filled(template, a=left, b=right)

    def _once(self, text: str, template: str, place: str) -> str:
        """The text, under a name of its own where the template has it more than once."""
        if template.count(place) == 1 or text.isidentifier():
            return text
        taken = [*self._names, *(line.split(" = ")[0] for line in self._torch)]
        name = next(
            name for name in self._rng.sample(_RESULTS, len(_RESULTS)) if name + self._ending not in taken
        )
        self._torch.append(f"{name}{self._ending} = {_plain(text)}")
        return f"{name}{self._ending}"


def _by_number(name: str, rng: random.Random) -> Pointwise:
    """A value and a number of the module."""
    text = rng.choice(("{v} * NUMBER", "{v} * NUMBER", "{v} + NUMBER", "{v} / NUMBER"))
    operator = {"*": "mul", "+": "add", "/": "div"}[text[4]]
    return Pointwise(operator, text.replace("NUMBER", f"self.{name}"))


def _filled(template: str, **texts: str) -> str:
    """The template as an operand, with each text in it; a call's whole argument needs no brackets."""
    for name, text in texts.items():
        whole = re.search(rf"[(] *{{{name}}}[,)]|, {{{name}}}[)]", template) and "**" not in template
        template = template.replace(f"{{{name}}}", _plain(text) if whole else text)
    return _bracketed(template)


def _bracketed(text: str) -> str:
    """The text as an operand of a further operator."""
    is_call = text.endswith(")") and text.split("(")[0].replace(".", "").isidentifier() and _closes_last(text)
    return text if text.isidentifier() or is_call else f"({text})"


def _plain(text: str) -> str:
    return text[1:-1] if text.startswith("(") and _closes_last(text) else text


def _closes_last(text: str) -> bool:
    """True if the first bracket closes at the very end."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == ")" and depth == 0:
            return place == len(text) - 1
    return False
