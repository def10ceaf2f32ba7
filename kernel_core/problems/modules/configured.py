"""Activations with numbers: as a layer or as a function, with defaults as often as given values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.pointwise import ACTIVATIONS
from kernel_core.problems.modules.steps import Step
from kernel_core.problems.modules.style import unused


@dataclass(frozen=True)
class Setting:
    """A number of an activation."""

    name: str
    """Torch's name of the argument and of the layer's attribute."""
    default: str
    values: tuple[str, ...]
    spellings: tuple[str, ...]
    """Names of an argument of the module's constructor."""


@dataclass(frozen=True)
class Configurable:
    """An activation that takes numbers."""

    layer: str
    """Torch's class without `nn.`."""
    settings: tuple[Setting, ...]


CONFIGURABLE: dict[str, Configurable] = {
    "leaky_relu": Configurable(
        "LeakyReLU",
        (
            Setting(
                "negative_slope", "0.01", ("0.05", "0.1", "0.2", "0.3"), ("negative_slope", "slope", "leak")
            ),
        ),
    ),
    "elu": Configurable("ELU", (Setting("alpha", "1.0", ("0.5", "0.8", "1.5"), ("alpha", "elu_alpha")),)),
    "softplus": Configurable(
        "Softplus", (Setting("beta", "1.0", ("0.5", "2.0", "3.0"), ("beta", "sharpness")),)
    ),
    "hardtanh": Configurable(
        "Hardtanh",
        (
            Setting("min_val", "-1.0", ("-0.5", "-2.0", "0.0"), ("min_val", "hardtanh_min", "lower_limit")),
            Setting("max_val", "1.0", ("0.5", "2.0", "1.5"), ("max_val", "hardtanh_max", "upper_limit")),
        ),
    ),
}


NAMES: tuple[str, ...] = (*ACTIVATIONS, *CONFIGURABLE)
"""Activations of chains; those with numbers come twice as often as others."""


def draw_configured(name: str, rng: random.Random, taken: set[str], attributes: Sequence[str]) -> Step:
    """A layer under one of the `attributes`, or a call; names that are used become taken."""
    kind = CONFIGURABLE[name]
    as_default = rng.random() < 0.5
    values = tuple(part.default if as_default else rng.choice(part.values) for part in kind.settings)
    free = [attribute for attribute in attributes if attribute not in taken]
    kept = free and not any(part.name in taken for part in kind.settings)
    if kept and rng.random() < 0.55:
        attribute = rng.choice(free)
        given = _spelled(kind, rng, taken) if rng.random() < 0.5 else ()
        is_written = given or not as_default or rng.random() < 0.3
        inside = _inside(kind, given or values, rng) if is_written else ""
        taken.update((attribute, *(part.name for part in kind.settings)))
        line = f"self.{attribute} = nn.{kind.layer}({inside})"
        return _step(name, f"self.{attribute}(x)", values, given, (line,))
    function = rng.choice((f"F.{name}", f"F.{name}", f"torch.nn.functional.{name}"))
    if rng.random() < 0.4:
        given = _spelled(kind, rng, taken)
        inside = _inside(kind, [f"self.{part}" for part in given], rng)
        lines = tuple(f"self.{part} = {part}" for part in given)
        return _step(name, f"{function}(x, {inside})", values, given, lines)
    written = values
    if rng.random() < 0.3:
        written = tuple(text.removesuffix(".0") for text in values)
    inside = "" if as_default and rng.random() < 0.4 else f", {_inside(kind, written, rng)}"
    return _step(name, f"{function}(x{inside})", values)


def _step(
    name: str,
    text: str,
    values: tuple[str, ...],
    init_args: tuple[str, ...] = (),
    init_lines: tuple[str, ...] = (),
) -> Step:
    """The step of an expression over `x`; its value has the numbers written out."""
    value = f"x = F.{name}(x, {', '.join(values)})"
    constants = tuple(zip(init_args, values, strict=False))
    return Step(name, (f"x = {text}",), value, init_args, init_lines, constants)


def _spelled(kind: Configurable, rng: random.Random, taken: set[str]) -> tuple[str, ...]:
    """A free name of the constructor for each setting; the names are taken afterwards."""
    return tuple(unused(part.spellings, rng, taken) for part in kind.settings)


def _inside(kind: Configurable, texts: Sequence[str], rng: random.Random) -> str:
    keyword = rng.random() < 0.6
    pairs = zip(kind.settings, texts, strict=True)
    return ", ".join(f"{part.name}={text}" if keyword else text for part, text in pairs)
