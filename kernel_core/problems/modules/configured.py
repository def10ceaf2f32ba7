"""Activations with numbers: as a layer that keeps them, or as a function; defaults as often as given values.

Layers keep their numbers under torch's names, and a kernel's launch reads them there, given or not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.pointwise import ACTIVATIONS
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
    triton: str
    """The expression over `{v}` and the settings `{0}` and `{1}`."""


CONFIGURABLE: dict[str, Configurable] = {
    "leaky_relu": Configurable(
        "LeakyReLU",
        (
            Setting(
                "negative_slope", "0.01", ("0.05", "0.1", "0.2", "0.3"), ("negative_slope", "slope", "leak")
            ),
        ),
        "tl.where({v} > 0, {v}, {v} * {0})",
    ),
    "elu": Configurable(
        "ELU",
        (Setting("alpha", "1.0", ("0.5", "0.8", "1.5"), ("alpha", "elu_alpha")),),
        "tl.where({v} > 0, {v}, {0} * (tl.exp({v}) - 1.0))",
    ),
    "softplus": Configurable(
        "Softplus",
        (Setting("beta", "1.0", ("0.5", "2.0", "3.0"), ("beta", "sharpness")),),
        "tl.maximum({v}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({v} * {0}))) / {0}",
    ),
    "hardtanh": Configurable(
        "Hardtanh",
        (
            Setting("min_val", "-1.0", ("-0.5", "-2.0", "0.0"), ("min_val", "hardtanh_min", "lower_limit")),
            Setting("max_val", "1.0", ("0.5", "2.0", "1.5"), ("max_val", "hardtanh_max", "upper_limit")),
        ),
        "tl.minimum(tl.maximum({v}, {0}), {1})",
    ),
}


NAMES: tuple[str, ...] = (*ACTIVATIONS, *CONFIGURABLE)
"""Activations of chains; those with numbers come twice as often as others."""


@dataclass(frozen=True)
class Configured:
    """One use of such an activation."""

    torch: str
    """The expression over `x`."""
    names: tuple[str, ...]
    """For each setting the kernel's argument, or the number where none is passed."""
    values: tuple[str, ...]
    init_args: tuple[str, ...] = ()
    init_lines: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    """The kernel's argument and the host's expression."""

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """The constructor's arguments with their values."""
        return tuple(zip(self.init_args, self.values, strict=False))


def draw_configured(name: str, rng: random.Random, taken: set[str], attributes: Sequence[str]) -> Configured:
    """A layer under one of the `attributes`, or a call; names that are used become taken."""
    one = CONFIGURABLE[name]
    as_default = rng.random() < 0.5
    values = tuple(part.default if as_default else rng.choice(part.values) for part in one.settings)
    free = [attribute for attribute in attributes if attribute not in taken]
    kept = free and not any(part.name in taken for part in one.settings)
    if kept and rng.random() < 0.55:
        return _layer(one, values, as_default, rng, taken, rng.choice(free))
    return _call(name, one, values, as_default, rng, taken)


def _layer(
    one: Configurable,
    values: tuple[str, ...],
    as_default: bool,
    rng: random.Random,
    taken: set[str],
    attribute: str,
) -> Configured:
    names = tuple(part.name for part in one.settings)
    given: tuple[str, ...] = ()
    if rng.random() < 0.5:
        given = _spelled(one, rng, taken)
    inside = _inside(one, given or values, rng) if given or not as_default or rng.random() < 0.3 else ""
    taken.update((attribute, *names))
    return Configured(
        torch=f"self.{attribute}(x)",
        names=names,
        values=values,
        init_args=given,
        init_lines=(f"self.{attribute} = nn.{one.layer}({inside})",),
        arguments=tuple((part, f"self.{attribute}.{part}") for part in names),
    )


def _call(
    name: str,
    one: Configurable,
    values: tuple[str, ...],
    as_default: bool,
    rng: random.Random,
    taken: set[str],
) -> Configured:
    function = rng.choice((f"F.{name}", f"F.{name}", f"torch.nn.functional.{name}"))
    if rng.random() < 0.4:
        given = _spelled(one, rng, taken)
        held = tuple(f"self.{part}" for part in given)
        return Configured(
            torch=f"{function}(x, {_inside(one, held, rng)})",
            names=given,
            values=values,
            init_args=given,
            init_lines=tuple(f"self.{part} = {part}" for part in given),
            arguments=tuple(zip(given, held, strict=True)),
        )
    written = values
    if rng.random() < 0.3:
        written = tuple(text.removesuffix(".0") for text in values)
    inside = "" if as_default and rng.random() < 0.4 else f", {_inside(one, written, rng)}"
    return Configured(torch=f"{function}(x{inside})", names=values, values=values)


def _spelled(one: Configurable, rng: random.Random, taken: set[str]) -> tuple[str, ...]:
    """A free name of the constructor for each setting; the names are taken afterwards."""
    return tuple(unused(part.spellings, rng, taken) for part in one.settings)


def _inside(one: Configurable, texts: Sequence[str], rng: random.Random) -> str:
    keyword = rng.random() < 0.6
    pairs = zip(one.settings, texts, strict=True)
    return ", ".join(f"{part.name}={text}" if keyword else text for part, text in pairs)
