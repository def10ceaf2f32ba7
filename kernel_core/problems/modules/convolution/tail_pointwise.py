"""Elementwise operators of a chain: activations with default and given settings, arithmetic with constants.

A long formula is a Triton function of its own, so that no line of a kernel holds many parentheses.
"""

from __future__ import annotations

import random
import re
from typing import TypedDict

from kernel_core.problems.modules.configured import CONFIGURABLE, NAMES, draw_configured
from kernel_core.problems.modules.convolution.tail_ops import Op
from kernel_core.problems.modules.convolution.tail_values import evaluated
from kernel_core.problems.modules.pointwise import SCALINGS, pointwise
from kernel_core.problems.modules.style import unused

_HELPED = {
    "mish": ("softplus = tl.maximum(v, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(v)))",
             "return v * (2.0 * tl.sigmoid(2.0 * softplus) - 1.0)"),
    "gelu": ("phi = 0.5 * (1.0 + tl.erf(v * 0.70710678))", "return v * phi"),
    "gelu_tanh": ("inner = 0.7978845608 * (v + 0.044715 * v * v * v)",
                  "return v * tl.sigmoid(2.0 * inner)"),
    "logsigmoid": ("small = tl.exp(-tl.abs(v))", "return tl.minimum(v, 0.0) - tl.log(1.0 + small)"),
    "selu": ("negative = 1.67326324 * (tl.exp(v) - 1.0)",
             "return 1.05070099 * tl.where(v > 0, v, negative)"),
    "tanh": ("return 2.0 * tl.sigmoid(2.0 * v) - 1.0",),
    "hardswish": ("gate = tl.minimum(tl.maximum(v / 6.0 + 0.5, 0.0), 1.0)", "return v * gate"),
}  # fmt: skip
_SPELLINGS = {
    "mish": ("F.mish(x)", "x * torch.tanh(F.softplus(x))", "F.softplus(x).tanh() * x"),
    "swish": ("x * torch.sigmoid(x)", "torch.sigmoid(x) * x", "x * x.sigmoid()"),
}
_CONSTANTS = {"mul": ("*", ("scale", "scaling_factor", "multiplier", "factor", "scale_factor")),
              "div": ("/", ("divisor", "divide_by", "denominator", "temperature")),
              "add": ("+", ("add_value", "offset", "shift", "constant_value", "constant")),
              "sub": ("-", ("subtract_value", "margin", "baseline", "subtract_first"))}  # fmt: skip
_GATED = 0.2
"""Share of activations that the value itself is multiplied with."""
_LIMITS = (("-1.0", "1.0"), ("-0.5", "0.5"), ("0.0", "1.0"), ("-2.0", "1.5"))


def draw_pointwise(rng: random.Random, taken: set[str]) -> Op:
    """An activation, or arithmetic with a constant that is written out or given to the constructor."""
    if rng.random() < 0.6:
        return _activation(rng.choice(NAMES), rng, taken)
    name = rng.choice(SCALINGS)
    if name in _CONSTANTS and rng.random() < 0.6:
        return _given_constant(name, rng, taken)
    if name == "clamp":
        return _given_clamp(rng, taken) if rng.random() < 0.5 else _clamp(rng)
    one = pointwise(name, rng)
    while one.torch.endswith((" * 1.0", " / 1.0")):
        one = pointwise(name, rng)
    tile = f"v = {one.triton.replace('{v}', 'v')}"
    return Op(
        name, "pointwise", (f"x = {one.torch.replace('{v}', 'x')}",), lambda x: evaluated(tile, x), (tile,)
    )


def _activation(name: str, rng: random.Random, taken: set[str]) -> Op:
    if name in CONFIGURABLE:
        return _with_settings(name, rng, taken)
    one = pointwise(name, rng)
    call, layer, formula = one.torch.replace("{v}", "x"), one.layer, one.triton.replace("{v}", "v")
    line, init = f"x = {rng.choice(_SPELLINGS.get(name, (call,)))}", ""
    if layer and rng.random() < 0.4 and name not in taken:
        taken.add(name)
        line, init = f"x = self.{name}(x)", f"self.{name} = {layer}"
    elif rng.random() < 0.5:
        line = re.sub(r"\bF\.", "torch.nn.functional.", line)
    tile, helper = f"v = {formula}", ""
    if name in _HELPED:
        body = "\n    ".join(_HELPED[name])
        tile, helper = f"v = {name}(v)", f"@triton.jit\ndef {name}(v):\n    {body}"
    if not init and rng.random() < _GATED:
        gate = line.removeprefix("x = ")
        line = f"x = x * {gate if _is_one_factor(gate) else f'({gate})'}"
        tile = f"v = v * {name}(v)" if helper else f"v = v * ({formula})"
        formula, name = f"v * ({formula})", f"{name}_gate"
    return Op(
        name,
        "pointwise",
        (line,),
        lambda x: evaluated(f"v = {formula}", x),
        (tile,),
        init_lines=(init,) if init else (),
        helper=helper,
    )


def _is_one_factor(text: str) -> bool:
    return text.endswith(")") and " " not in text


def _with_settings(name: str, rng: random.Random, taken: set[str]) -> Op:
    """A layer or a call with numbers: defaults, written out, or given to the constructor."""
    formula = CONFIGURABLE[name].triton
    one = draw_configured(name, rng, taken, (name, f"{name}_layer", "act", "activation"))
    tile = f"v = {formula.format(*one.names, v='v')}"
    return Op(
        name,
        "pointwise",
        (f"x = {one.torch}",),
        lambda x: evaluated(f"v = {formula.format(*one.values, v='v')}", x),
        (tile,),
        init_args=one.init_args,
        init_lines=one.init_lines,
        settings=one.constants,
        arguments=one.arguments,
    )


def _given_constant(name: str, rng: random.Random, taken: set[str]) -> Op:
    sign, names = _CONSTANTS[name]
    attribute = unused(names, rng, taken)
    value = rng.choice(
        ("0.5", "1.5", "2", "2.0", "2.5", "3.0", "0.75") if sign in "*/" else ("0.1", "0.25", "0.5")
    )
    return Op(
        name,
        "pointwise",
        (f"x = x {sign} self.{attribute}",),
        lambda x: evaluated(f"v = v {sign} {value}", x),
        (f"v = v {sign} {attribute}",),
        arguments=((attribute, f"self.{attribute}"),),
        **_kept_numbers(((attribute, value),), rng),
    )


class _Numbers(TypedDict):
    init_args: tuple[str, ...]
    init_lines: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


def _kept_numbers(pairs: tuple[tuple[str, str], ...], rng: random.Random) -> _Numbers:
    """Attributes with numbers: given to the constructor, or written there."""
    written = rng.random() < 0.2
    names = tuple(name for name, _ in pairs)
    return _Numbers(
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
    tile = {
        "both": f"v = tl.minimum(tl.maximum(v, {low}), {high})",
        "min": f"v = tl.maximum(v, {low})",
    }.get(form, f"v = tl.minimum(v, {high})")
    return Op("clamp", "pointwise", (f"x = {text}",), lambda x: evaluated(tile, x), (tile,))


def _given_clamp(rng: random.Random, taken: set[str]) -> Op:
    """A clamp between attributes of the module; in half of them at one side alone."""
    low, high = rng.choice(_LIMITS)
    names = (("min_value", "clamp_min", "floor_value"), ("max_value", "clamp_max", "ceiling_value"))
    side = rng.choice(("both", "both", "least", "most"))
    least = unused(names[0], rng, taken) if side != "most" else ""
    most = unused(names[1], rng, taken) if side != "least" else ""
    attributes = [f"self.{name}" for name in (least, most) if name]
    words = [word for word, name in (("min", least), ("max", most)) if name]
    given = ", ".join(f"{word}={text}" for word, text in zip(words, attributes, strict=True))
    forms = [f"torch.clamp(x, {given})", f"x.clamp({given})"]
    if side == "both":
        forms.append(f"torch.clamp(x, {', '.join(attributes)})")
    tile = {
        "both": f"v = tl.minimum(tl.maximum(v, {least}), {most})",
        "least": f"v = tl.maximum(v, {least})",
        "most": f"v = tl.minimum(v, {most})",
    }[side]
    values = {least: low, most: high}
    pairs = tuple((name, values[name]) for name in (least, most) if name)
    model = tile
    for name, value in pairs:
        model = re.sub(rf"\b{name}\b", value, model)
    return Op(
        "clamp",
        "pointwise",
        (f"x = {rng.choice(forms)}",),
        lambda x: evaluated(model, x),
        (tile,),
        arguments=tuple((name, f"self.{name}") for name, _ in pairs),
        **_kept_numbers(pairs, rng),
    )
