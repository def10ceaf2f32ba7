"""Elementwise operators and pools of a chain: activations, arithmetic with constants, windows."""

from __future__ import annotations

import random
import re
from typing import TypedDict, Unpack

from kernel_core.problems.modules.configured import CONFIGURABLE, NAMES, draw_configured
from kernel_core.problems.modules.convolution.tail_ops import Op
from kernel_core.problems.modules.convolution.tail_values import pooled
from kernel_core.problems.modules.pointwise import SCALINGS, pointwise
from kernel_core.problems.modules.probe import value_of
from kernel_core.problems.modules.style import unused

_SPELLINGS = {
    "mish": ("F.mish(x)", "x * torch.tanh(F.softplus(x))", "F.softplus(x).tanh() * x"),
    "swish": ("x * torch.sigmoid(x)", "torch.sigmoid(x) * x", "x * x.sigmoid()"),
}
_CONSTANTS = {"mul": ("*", ("scale", "scaling_factor", "multiplier", "factor", "scale_factor")),
              "div": ("/", ("divisor", "divide_by", "denominator", "temperature")),
              "add": ("+", ("add_value", "offset", "shift", "constant_value", "constant")),
              "sub": ("-", ("subtract_value", "margin", "baseline", "subtract_first"))}  # fmt: skip
_WINDOWS = {
    2: ((2, 2), (2, 2), (2, 2), (3, 3), (2, 3), (3, 2), (1, 2), (2, 1)),
    3: ((2, 2, 2), (2, 2, 2), (2, 2, 2), (1, 2, 2), (2, 1, 2), (2, 2, 1)),
}
_GATED = 0.2
"""Share of activations that the value itself is multiplied with."""
_LIMITS = (("-1.0", "1.0"), ("-0.5", "0.5"), ("0.0", "1.0"), ("-2.0", "1.5"))


class _Parts(TypedDict, total=False):
    """The constructor's part of an operator."""

    init_args: tuple[str, ...]
    init_lines: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


def draw_pointwise(rng: random.Random, taken: set[str]) -> Op:
    """An activation, or arithmetic with a constant that is written out or given to the constructor."""
    if rng.random() < 0.6:
        return _activation(rng.choice(NAMES), rng, taken)
    name = rng.choice(SCALINGS)
    if name in _CONSTANTS and rng.random() < 0.6:
        return _given_constant(name, rng, taken)
    if name == "clamp":
        return _given_clamp(rng, taken) if rng.random() < 0.5 else _clamp(rng)
    drawn = pointwise(name, rng)
    while drawn.torch.endswith((" * 1.0", " / 1.0")):
        drawn = pointwise(name, rng)
    return _op(name, drawn.torch.replace("{v}", "x"))


def _op(name: str, text: str, value: str = "", **parts: Unpack[_Parts]) -> Op:
    """The operator of an expression over `x`; `value` is one without `self`, where `text` has it."""
    line = f"x = {value or text}"
    return Op(name, "pointwise", (f"x = {text}",), lambda x: value_of((line,), {}, x), **parts)


def _activation(name: str, rng: random.Random, taken: set[str]) -> Op:
    if name in CONFIGURABLE:
        given = draw_configured(name, rng, taken, (name, f"{name}_layer", "act", "activation"))
        parts = _Parts(init_args=given.init_args, init_lines=given.init_lines, settings=given.constants)
        return Op(name, "pointwise", given.torch, lambda x: value_of((given.value,), {}, x), **parts)
    drawn = pointwise(name, rng)
    call = drawn.torch.replace("{v}", "x")
    text = rng.choice(_SPELLINGS.get(name, (call,)))
    if drawn.layer and rng.random() < 0.4 and name not in taken:
        taken.add(name)
        return _op(name, f"self.{name}(x)", call, init_lines=(f"self.{name} = {drawn.layer}",))
    if rng.random() < 0.5:
        text = re.sub(r"\bF\.", "torch.nn.functional.", text)
    if rng.random() < _GATED:
        is_one_factor = text.endswith(")") and " " not in text
        gate = text if is_one_factor else f"({text})"
        return _op(f"{name}_gate", f"x * {gate}")
    return _op(name, text)


def _given_constant(name: str, rng: random.Random, taken: set[str]) -> Op:
    sign, names = _CONSTANTS[name]
    attribute = unused(names, rng, taken)
    value = rng.choice(
        ("0.5", "1.5", "2", "2.0", "2.5", "3.0", "0.75") if sign in "*/" else ("0.1", "0.25", "0.5")
    )
    numbers = _kept_numbers(((attribute, value),), rng)
    return _op(name, f"x {sign} self.{attribute}", f"x {sign} {value}", **numbers)


def _kept_numbers(pairs: tuple[tuple[str, str], ...], rng: random.Random) -> _Parts:
    """Attributes with numbers: given to the constructor, or written there."""
    written = rng.random() < 0.2
    names = tuple(name for name, _ in pairs)
    return _Parts(
        init_args=() if written else names,
        init_lines=tuple(f"self.{name} = {value if written else name}" for name, value in pairs),
        settings=() if written else pairs,
    )


def _clamp(rng: random.Random) -> Op:
    low, high = rng.choice(_LIMITS)
    form = rng.choice(("both", "min", "max", "min_tensor"))
    text = {
        "both": f"torch.clamp(x, min={low}, max={high})",
        "min": f"torch.clamp(x, min={low})",
        "max": f"torch.clamp(x, max={high})",
        "min_tensor": f"torch.min(x, torch.tensor({high}, device=x.device))",
    }[form]
    return _op("clamp", text)


def _given_clamp(rng: random.Random, taken: set[str]) -> Op:
    """A clamp between attributes of the module; in half of them at one side alone."""
    low, high = rng.choice(_LIMITS)
    side = rng.choice(("both", "both", "least", "most"))
    bounds = []
    if side != "most":
        bounds.append(("min", unused(("min_value", "clamp_min", "floor_value"), rng, taken), low))
    if side != "least":
        bounds.append(("max", unused(("max_value", "clamp_max", "ceiling_value"), rng, taken), high))
    given = ", ".join(f"{word}=self.{name}" for word, name, _ in bounds)
    forms = [f"torch.clamp(x, {given})", f"x.clamp({given})"]
    if side == "both":
        forms.append(f"torch.clamp(x, {', '.join(f'self.{name}' for _, name, _ in bounds)})")
    text = value = rng.choice(forms)
    for _, name, number in bounds:
        value = value.replace(f"self.{name}", number)
    return _op("clamp", text, value, **_kept_numbers(tuple(bound[1:] for bound in bounds), rng))


def draw_pool(rng: random.Random, taken: set[str], rank: int) -> Op:
    """A pool with its extent alone, with a stride, or with stride and padding; integers or tuples."""
    detail = rng.choice(("max", "avg"))
    window = rng.choice(_WINDOWS[rank])
    attribute = unused((f"{detail}_pool", "pool", f"{detail}_pool2", f"{detail}pool"), rng, taken)
    count = rng.choices((1, 2, 3), (5, 4, 2))[0]
    stride = window
    if count > 1 and rng.random() < 0.3:
        stride = tuple(max(1, extent - 1) for extent in window)
    # Torch takes at most half of the window as padding.
    most = rng.choice((0, 1))
    padding = tuple(min(most, extent // 2) for extent in window)
    values = tuple(_written(setting, rng) for setting in (window, stride, padding)[:count])
    words = ("kernel_size", "stride", "padding")[:count]
    given: tuple[str, ...] = ()
    if rng.random() < 0.55:
        pattern = rng.choice((f"{attribute}_@", "pool_@", "@_pool", f"{detail}pool_@"))
        given = tuple(unused((pattern.replace("@", word),), rng, taken) for word in words)
    elif rng.random() < 0.2:
        given = (unused(("pool_size", "window", f"{detail}_window"), rng, taken),)
    keyword = rng.random() < 0.6
    texts = (*given, *values[len(given) :])
    pairs = zip(words, texts, strict=True)
    inside = ", ".join(f"{word}={text}" if keyword else text for word, text in pairs)
    return Op(
        f"{detail}_pool{rank}d",
        "pool",
        (f"x = self.{attribute}(x)",),
        pooled(detail),
        init_args=given,
        init_lines=(f"self.{attribute} = nn.{detail.capitalize()}Pool{rank}d({inside})",),
        settings=tuple(zip(given, values, strict=False)),
        detail=detail,
        attribute=attribute,
        window=window,
    )


def _written(values: tuple[int, ...], rng: random.Random) -> str:
    even = len(set(values)) == 1
    return str(values[0]) if even and rng.random() < 0.65 else str(values)
