"""Families of single convolutions, forward and transposed, over one to three axes.

Each is one layer, in the forms that constructors of such modules have.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.convolution.geometry import Geometry, draw_geometry
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.style import Argument, Style, class_docstring, draw_style
from kernel_core.problems.program import dims_of

MEANINGS = {
    "in_channels": ("Channels of the input", "Number of input feature maps", "How many channels x has"),
    "out_channels": ("Channels of the result", "Number of filters", "How many channels are produced"),
    "kernel_size": ("Extent of the filter", "Size of the window that slides", "Width of the kernel"),
    "stride": ("Step between output positions", "Distance that the window moves", "Step of the window"),
    "padding": ("Zeros on each side of the input", "Width of the zero border", "Zero padding of every side"),
    "output_padding": ("Extra positions at the end of the result", "Growth of one side of the result"),
    "dilation": ("Distance between kernel positions", "Gap between taps of the filter", "Tap spacing"),
    "groups": ("Blocks of channels that do not mix", "Number of independent channel blocks"),
    "bias": (
        "If True, a learned offset is added to each output channel",
        "Whether the layer learns a bias",
        "If True, adds a trainable bias to the result",
        "Adds a bias for each output channel when True",
    ),
}
_AXIS_WORDS = {"h": "vertical axis", "w": "horizontal axis"}


_CHANNELS = ("in_channels", "out_channels")


@dataclass(frozen=True)
class Option:
    """An argument of the layer beyond channels: its value in the problem and its default."""

    name: str
    value: str
    default: str
    kind: str


def one_layer(rng: random.Random, rank: int, transposed: bool) -> Draft:
    """A convolution over a sequence, images or volumes."""
    geometry = draw_geometry(rng, rank, transposed=transposed, simple=rng.random() < 0.35)
    style = draw_style(rng)
    operator = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    return _module(geometry, style, rng).draft((operator,), style)


def _module(geometry: Geometry, style: Style, rng: random.Random) -> Module:
    rank = geometry.rank
    form = "ConvTranspose" if geometry.transposed else "Conv"
    short = "conv_transpose" if geometry.transposed else "conv"
    attribute = rng.choice((short, *[f"{short}{rank}d"] * 3, f"{short}_layer" if rank == 1 else "layer"))
    options = _options(geometry, rng)
    given = _given(options, rng)
    keywords = "".join(f", {option.name}={option.name}" for option in given if option.name != "kernel_size")
    kernel = "kernel_size"
    if rank > 1 and given[0].kind == "int" and rng.random() < 0.25:
        kernel = f"({', '.join(['kernel_size'] * rank)})"
    layer = f"nn.{form}{rank}d(in_channels, out_channels, {kernel}{keywords})"
    written = rng.random() < 0.15
    if written:
        layer, given = _written(form, geometry, options), []
    channels = ("in_channels: int", "out_channels: int") if style.annotations else _CHANNELS
    passed = _passed(given)
    x = dims_of((geometry.batch, geometry.in_channels, *geometry.spatial))
    return Module(
        doc=_doc(geometry, given, style, rng),
        init_args=(*channels, *[typed(option.name, option.kind, option.default, style) for option in given]),
        init_lines=(f"self.{attribute} = {layer}",),
        forward_lines=_forward(attribute, rng),
        sizes=(geometry.batch, geometry.in_channels, geometry.out_channels, *geometry.spatial),
        inputs=(f"torch.{rng.choice(('rand', 'randn'))}({x})",),
        init_inputs=(*_CHANNELS, *[option.name for option in passed]),
        constants=tuple((option.name, option.value) for option in passed),
        forward_doc=forward_doc(geometry, rng),
    )


def _forward(attribute: str, rng: random.Random) -> tuple[str, ...]:
    if rng.random() < 0.7:
        return (f"return self.{attribute}(x)",)
    return (f"x = self.{attribute}(x)", "return x")


def _options(geometry: Geometry, rng: random.Random) -> list[Option]:
    per_axis = [
        ("kernel_size", geometry.kernel, ""),
        ("stride", geometry.stride, "1"),
        ("padding", geometry.padding, "0"),
        ("dilation", geometry.dilation, "1"),
    ]
    if geometry.transposed:
        per_axis.insert(3, ("output_padding", geometry.output_padding, "0"))
    wide = len(set(geometry.kernel)) > 1 or rng.random() < 0.1
    options = []
    for name, value, default in per_axis:
        even = len(set(value)) == 1
        as_tuple = not even or (wide and geometry.rank > 1)
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
    return [option for option in options if option.value != option.default or option.name == "bias"]


def _written(form: str, geometry: Geometry, options: list[Option]) -> str:
    """The layer with its options written out as numbers."""
    values = [option for option in options if option.value != option.default and option.name != "bias"]
    text = "".join(f", {option.name}={option.value}" for option in values)
    bias = "" if geometry.bias else ", bias=False"
    return f"nn.{form}{geometry.rank}d(in_channels, out_channels{text}{bias})"


def _passed(given: list[Option]) -> list[Option]:
    """The options that the problem passes by position: up to the last that is not at its default."""
    last = max(
        (position for position, option in enumerate(given) if option.value != option.default), default=-1
    )
    return given[: last + 1]


def typed(name: str, kind: str, default: str, style: Style) -> str:
    """An argument of the constructor, with its type and its default if it has one."""
    if not style.annotations:
        return f"{name}={default}" if default else name
    return f"{name}: {kind} = {default}" if default else f"{name}: {kind}"


def described(name: str, kind: str, default: str, rng: random.Random) -> Argument:
    """The argument's row of a docstring; names such as `stride_h` mean one axis."""
    stem, _, axis = name.rpartition("_")
    if axis in _AXIS_WORDS:
        return Argument(name, kind, f"{rng.choice(MEANINGS[stem])}, {_AXIS_WORDS[axis]}", default)
    return Argument(name, kind, rng.choice(MEANINGS[name]), default)


def forward_doc(geometry: Geometry, rng: random.Random) -> tuple[str, ...]:
    """Lines of the docstring of `forward`, with the shapes of input and result."""
    names = [size.name for size in geometry.spatial]
    before = ", ".join(("batch_size", "in_channels", *names))
    outputs = [rng.choice((f"{name}_out", f"out_{name}")) for name in names]
    after = ", ".join(("batch_size", "out_channels", *outputs))
    return (
        rng.choice(
            ("Applies the layer to a batch.", "Computes the convolution of x.", "Runs the layer on x.")
        ),
        "",
        "Args:",
        f"    x (torch.Tensor): {rng.choice(('Batch', 'Input', 'Tensor'))} of shape ({before}).",
        "",
        "Returns:",
        f"    torch.Tensor: {rng.choice(('Result', 'Feature maps', 'Tensor'))} of shape ({after}).",
    )


def _doc(geometry: Geometry, given: list[Option], style: Style, rng: random.Random) -> str:
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
    start = rng.choice(("A", "One", "A single", "Computes a", "Applies a", "Module with one"))
    detail = f" ({', '.join(traits)})" if traits and rng.random() < 0.7 else ""
    kernel = "an uneven kernel" if len(set(geometry.kernel)) > 1 else "the same kernel extent on each axis"
    sentence = f"{start} {name}{detail}" + (f" with {kernel}." if geometry.rank > 1 else ".")
    if rng.random() < (0.1 if style.docstring == "full" else 0.5):
        return sentence
    rows = [described(name, "int", "", rng) for name in _CHANNELS]
    rows += [described(option.name, option.kind, option.default, rng) for option in given]
    return class_docstring(sentence, rows, rng)
