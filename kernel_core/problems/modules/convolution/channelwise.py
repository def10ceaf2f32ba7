"""Families of depthwise, pointwise and depthwise-separable convolutions over images."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernel_core.problems.modules.convolution.geometry import Geometry, draw_geometry
from kernel_core.problems.modules.convolution.single import described, forward_doc, typed
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.style import Style, class_docstring, draw_style
from kernel_core.problems.program import Size

_SETTINGS = ("kernel_size", "stride", "padding", "dilation")
_DEFAULTS = {"stride": "1", "padding": "0", "dilation": "1"}


def conv_depthwise(rng: random.Random) -> Draft:
    """One filter for each channel."""
    geometry = draw_geometry(rng, 2, depthwise=True)
    style = draw_style(rng)
    attribute = rng.choice(("conv", "conv2d", "depthwise", "conv_dw"))
    values = (geometry.kernel, geometry.stride, geometry.padding, geometry.dilation)
    named = dict(zip(_SETTINGS, values, strict=True))
    if len({len(set(value)) for value in values}) > 1:
        settings = {
            f"{name}_{axis}": value[k] for name, value in named.items() for k, axis in enumerate("hw")
        }
        given = ", ".join(
            f"{'' if name == 'kernel_size' else f'{name}='}({name}_h, {name}_w)" for name in _SETTINGS
        )
        defaults = {f"{name}_{axis}": text for name, text in _DEFAULTS.items() for axis in "hw"}
    else:
        kept = [name for name in _SETTINGS if name != "dilation" or max(geometry.dilation) > 1]
        settings = {name: named[name][0] for name in kept}
        given, defaults = _by_name(kept), _DEFAULTS
    sentence = rng.choice(
        ("A depthwise 2D convolution: each channel has a filter of its own.", "Filters every channel alone.")
    )
    layer = f"nn.Conv2d(in_channels, in_channels, {given}, groups=in_channels, bias=bias)"
    build = _Build(geometry, style, sentence, (geometry.in_channels,), settings, defaults)
    return build.module({attribute: layer}, rng).draft(("conv_depthwise",), style)


def conv_pointwise(rng: random.Random) -> Draft:
    """A kernel of extent one: a matrix product over channels."""
    geometry = draw_geometry(rng, 2, pointwise=True)
    style = draw_style(rng)
    attribute = rng.choice(("conv", "pointwise", "proj", "conv2d"))
    extra = rng.choice(("", ", stride=1, padding=0"))
    sentence = rng.choice(("Mixes the channels of each pixel.", "A 1x1 convolution over a batch of images."))
    layer = f"nn.Conv2d(in_channels, out_channels, kernel_size=1{extra}, bias=bias)"
    build = _Build(geometry, style, sentence, (geometry.in_channels, geometry.out_channels))
    return build.module({attribute: layer}, rng).draft(("conv_pointwise",), style)


def conv_depthwise_separable(rng: random.Random) -> Draft:
    """A depthwise convolution, then a pointwise one."""
    geometry = draw_geometry(rng, 2, depthwise=True)
    kernel, dilation = geometry.kernel[0], geometry.dilation[0]
    padding = min(geometry.padding[0], dilation * (kernel - 1) // 2)
    outputs = replace(geometry.out_channels, gpu=rng.choice((32, 48, 64, 96, 128, 160, 192)), cpu=7)
    style = draw_style(rng)
    depthwise, pointwise = rng.choice(
        (("depthwise", "pointwise"), ("conv_dw", "conv_pw"), ("spatial", "mix"))
    )
    settings = dict(zip(_SETTINGS, (kernel, geometry.stride[0], padding, dilation), strict=True))
    sentence = rng.choice(
        ("A separable convolution: first in space, then over channels.", "Depthwise, then pointwise.")
    )
    given = _by_name(_SETTINGS)
    layers = {
        depthwise: f"nn.Conv2d(in_channels, in_channels, {given}, groups=in_channels, bias=bias)",
        pointwise: "nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=bias)",
    }
    build = _Build(geometry, style, sentence, (geometry.in_channels, outputs), settings, _DEFAULTS)
    return build.module(layers, rng).draft(("conv_depthwise_separable",), style)


@dataclass(frozen=True)
class _Build:
    """A module with channels, settings and `bias` as the constructor's arguments."""

    geometry: Geometry
    style: Style
    sentence: str
    channels: tuple[Size, ...]
    settings: Mapping[str, int] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    def module(self, layers: Mapping[str, str], rng: random.Random) -> Module:
        """The module of these layers by attribute, applied one after another."""
        names = [*(size.name for size in self.channels), *self.settings]
        arguments = [typed(name, "int", self.defaults.get(name, ""), self.style) for name in names]
        bias = (("bias", "True"),) if self.geometry.bias else ()
        calls = [f"self.{attribute}(x)" for attribute in layers]
        lines = [*(f"x = {call}" for call in calls), "return x"] if len(calls) > 1 else [f"return {calls[0]}"]
        return Module(
            doc=_doc(self.sentence, (*names, "bias"), self.defaults, rng),
            init_args=(*arguments, typed("bias", "bool", "False", self.style)),
            init_lines=tuple(f"self.{attribute} = {layer}" for attribute, layer in layers.items()),
            forward_lines=tuple(lines),
            sizes=(self.geometry.batch, *self.channels, *self.geometry.spatial),
            inputs=(f"torch.{rng.choice(('rand', 'randn'))}(batch_size, in_channels, height, width)",),
            init_inputs=(*names, *(name for name, _ in bias)),
            constants=(*((name, str(value)) for name, value in self.settings.items()), *bias),
            forward_doc=forward_doc(self.geometry, rng),
        )


def _by_name(settings: Sequence[str]) -> str:
    """Settings as arguments of a layer, the kernel's size by position."""
    return ", ".join(name if name == "kernel_size" else f"{name}={name}" for name in settings)


def _doc(sentence: str, names: Sequence[str], defaults: Mapping[str, str], rng: random.Random) -> str:
    """The class docstring, more often with a row for each argument than without."""
    if rng.random() < 0.35:
        return sentence
    rows = [
        described(name, "bool", "False", rng)
        if name == "bias"
        else described(name, "int", defaults.get(name, ""), rng)
        for name in names
    ]
    return class_docstring(sentence, rows, rng)
