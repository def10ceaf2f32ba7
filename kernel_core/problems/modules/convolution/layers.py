"""References that are one convolution layer, in the forms that constructors of such modules have."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.convolution.geometry import Geometry
from kernel_core.problems.modules.draft import Module
from kernel_core.problems.modules.style import Style

_MEANINGS = {
    "in_channels": "channels of the input",
    "out_channels": "channels of the result",
    "kernel_size": "extent of the kernel",
    "stride": "step between output positions",
    "padding": "zeros on each side of the input",
    "output_padding": "extra positions at the end of the result",
    "dilation": "distance between kernel positions",
    "groups": "independent blocks of channels",
    "bias": "whether a bias is learned",
}


@dataclass(frozen=True)
class Option:
    """An argument of the layer beyond channels: its value in the problem and its default."""

    name: str
    value: str
    default: str
    kind: str


def layer_module(geometry: Geometry, style: Style, rng: random.Random) -> tuple[Module, str]:
    """The reference and the name of its layer's attribute."""
    rank = geometry.rank
    form = "ConvTranspose" if geometry.transposed else "Conv"
    short = "conv_transpose" if geometry.transposed else "conv"
    attribute = rng.choice((short, f"{short}{rank}d", f"{short}{rank}d", "layer", "op"))
    options = _options(geometry)
    given = _given(options, rng)
    keywords = "".join(f", {one.name}={one.name}" for one in given if one.name != "kernel_size")
    kernel = "kernel_size"
    if rank > 1 and given[0].kind == "int" and rng.random() < 0.25:
        kernel = f"({', '.join(['kernel_size'] * rank)})"
    layer = f"nn.{form}{rank}d(in_channels, out_channels, {kernel}{keywords})"
    written = rng.random() < 0.15
    if written:
        layer, given = _written(form, geometry, options), []
    channels = ("in_channels: int", "out_channels: int") if style.annotations else _CHANNELS
    passed = _passed(given)
    x = ", ".join(size.name for size in (geometry.batch, geometry.in_channels, *geometry.spatial))
    return (
        Module(
            doc=_doc(geometry, [*_CHANNELS, *[one.name for one in given]], rng),
            init_args=(*channels, *[_argument(one, style) for one in given]),
            init_lines=(f"self.{attribute} = {layer}",),
            forward_args=("x",),
            forward_lines=_forward(attribute, rng),
            sizes=(geometry.batch, geometry.in_channels, geometry.out_channels, *geometry.spatial),
            inputs=(f"torch.{rng.choice(('rand', 'randn'))}({x})",),
            init_inputs=(*_CHANNELS, *[one.name for one in passed]),
            constants=tuple((one.name, one.value) for one in passed),
        ),
        attribute,
    )


_CHANNELS = ("in_channels", "out_channels")


def _forward(attribute: str, rng: random.Random) -> tuple[str, ...]:
    if rng.random() < 0.7:
        return (f"return self.{attribute}(x)",)
    return (f"x = self.{attribute}(x)", "return x")


def _options(geometry: Geometry) -> list[Option]:
    per_axis = [
        ("kernel_size", geometry.kernel, ""),
        ("stride", geometry.stride, "1"),
        ("padding", geometry.padding, "0"),
        ("dilation", geometry.dilation, "1"),
    ]
    if geometry.transposed:
        per_axis.insert(3, ("output_padding", geometry.output_padding, "0"))
    wide = len(set(geometry.kernel)) > 1
    options = []
    for name, value, default in per_axis:
        even = len(set(value)) == 1
        as_tuple = not even or (wide and geometry.rank > 1 and name != "stride")
        text = str(value) if as_tuple else str(value[0])
        base = f"({', '.join([default] * geometry.rank)})" if as_tuple and default else default
        options.append(Option(name, text, base, "tuple" if as_tuple else "int"))
    options.append(Option("groups", str(geometry.groups), "1", "int"))
    options.append(Option("bias", str(geometry.bias), "False", "bool"))
    return options


def _given(options: list[Option], rng: random.Random) -> list[Option]:
    """The options of the constructor: all, or those that differ from their defaults and `bias`."""
    if rng.random() < 0.6:
        return options
    return [one for one in options if one.value != one.default or one.name == "bias"]


def _written(form: str, geometry: Geometry, options: list[Option]) -> str:
    """The layer with its options written out as numbers."""
    values = [one for one in options if one.value != one.default and one.name != "bias"]
    text = "".join(f", {one.name}={one.value}" for one in values)
    bias = "" if geometry.bias else ", bias=False"
    return f"nn.{form}{geometry.rank}d(in_channels, out_channels{text}{bias})"


def _passed(given: list[Option]) -> list[Option]:
    """The options that the problem passes by position: up to the last that is not at its default."""
    last = max((position for position, one in enumerate(given) if one.value != one.default), default=-1)
    return given[: last + 1]


def _argument(option: Option, style: Style) -> str:
    kind = f": {option.kind}" if style.annotations else ""
    if not option.default:
        return f"{option.name}{kind}"
    return f"{option.name}{kind} = {option.default}" if kind else f"{option.name}={option.default}"


def _doc(geometry: Geometry, arguments: list[str], rng: random.Random) -> str:
    name = f"{'transposed ' if geometry.transposed else ''}{geometry.rank}D convolution"
    traits = [
        word
        for word, holds in (
            ("strided", max(geometry.stride) > 1),
            ("padded", max(geometry.padding) > 0),
            ("dilated", max(geometry.dilation) > 1),
            ("grouped", geometry.groups > 1),
        )
        if holds
    ]
    article = rng.choice(("A", "One", "A single"))
    detail = f" ({', '.join(traits)})" if traits and rng.random() < 0.7 else ""
    kernel = "an uneven kernel" if len(set(geometry.kernel)) > 1 else "the same kernel extent on each axis"
    sentence = f"{article} {name}{detail}" + (f" with {kernel}." if geometry.rank > 1 else ".")
    if rng.random() < 0.5:
        return sentence
    rows = "".join(f"        {one}: {_MEANINGS[one]}\n" for one in arguments)
    return f"\n    {sentence}\n\n    Args:\n{rows}    "
