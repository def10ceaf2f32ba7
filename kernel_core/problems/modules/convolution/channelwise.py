"""Families of depthwise, pointwise and depthwise-separable convolutions over images."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernel_core.problems.modules.convolution.geometry import Geometry, Wish, draw_geometry
from kernel_core.problems.modules.convolution.single import described, forward_doc
from kernel_core.problems.modules.draft import Draft, Module, draft
from kernel_core.problems.modules.style import Style, class_docstring, draw_style

_SETTINGS = ("kernel_size", "stride", "padding", "dilation")
_DEFAULTS = {"stride": "1", "padding": "0", "dilation": "1"}


def conv_depthwise(rng: random.Random) -> Draft:
    """One filter for each channel."""
    geometry = draw_geometry(rng, Wish(rank=2, depthwise=True))
    style = draw_style(rng)
    attribute = rng.choice(("conv", "conv2d", "depthwise", "conv_dw"))
    module = _depthwise_module(geometry, style, attribute, rng)
    return draft("conv_depthwise", ("conv_depthwise",), module, style)


def conv_pointwise(rng: random.Random) -> Draft:
    """A kernel of extent one: a matrix product over channels."""
    geometry = draw_geometry(rng, Wish(rank=2, pointwise=True))
    style = draw_style(rng)
    attribute = rng.choice(("conv", "pointwise", "proj", "conv2d"))
    extra = rng.choice(("", ", stride=1, padding=0"))
    typed = ": int" if style.annotations else ""
    sentence = rng.choice(("Mixes the channels of each pixel.", "A 1x1 convolution over a batch of images."))
    names = ("in_channels", "out_channels", "bias")
    module = Module(
        doc=_doc(sentence, names, {}, rng),
        init_args=(f"in_channels{typed}", f"out_channels{typed}", _bias_argument(style)),
        init_lines=(
            f"self.{attribute} = nn.Conv2d(in_channels, out_channels, kernel_size=1{extra}, bias=bias)",
        ),
        forward_args=("x",),
        forward_lines=(f"return self.{attribute}(x)",),
        sizes=(geometry.batch, geometry.in_channels, geometry.out_channels, *geometry.spatial),
        inputs=(_input(rng),),
        init_inputs=("in_channels", "out_channels", *(("bias",) if geometry.bias else ())),
        constants=(("bias", "True"),) if geometry.bias else (),
        forward_doc=forward_doc(geometry, rng),
    )
    return draft("conv_pointwise", ("conv_pointwise",), module, style)


def conv_depthwise_separable(rng: random.Random) -> Draft:
    """A depthwise convolution, then a pointwise one."""
    geometry = draw_geometry(rng, Wish(rank=2, depthwise=True))
    geometry = replace(geometry, kernel=(geometry.kernel[0],) * 2, stride=(geometry.stride[0],) * 2)
    half = geometry.dilation[0] * (geometry.kernel[0] - 1) // 2
    padding = (min(geometry.padding[0], half),) * 2
    geometry = replace(geometry, padding=padding, dilation=(geometry.dilation[0],) * 2)
    outputs = replace(geometry.out_channels, gpu=rng.choice((32, 48, 64, 96, 128, 160, 192)), cpu=7)
    style = draw_style(rng)
    attributes = rng.choice((("depthwise", "pointwise"), ("conv_dw", "conv_pw"), ("spatial", "mix")))
    module = _separable_module(replace(geometry, out_channels=outputs), style, attributes, rng)
    return draft("conv_depthwise_separable", ("conv_depthwise_separable",), module, style)


def _depthwise_module(geometry: Geometry, style: Style, attribute: str, rng: random.Random) -> Module:
    values = (geometry.kernel, geometry.stride, geometry.padding, geometry.dilation)
    named = dict(zip(_SETTINGS, values, strict=True))
    if len({len(set(value)) for value in values}) > 1:
        settings = [
            (f"{name}_{axis}", value[k]) for name, value in named.items() for k, axis in enumerate("hw")
        ]
        layer = ", ".join(
            f"{'' if name == 'kernel_size' else f'{name}='}({name}_h, {name}_w)" for name in _SETTINGS
        )
        defaults = {f"{name}_{axis}": text for name, text in _DEFAULTS.items() for axis in "hw"}
    else:
        kept = [name for name in _SETTINGS if name != "dilation" or max(geometry.dilation) > 1]
        settings = [(name, named[name][0]) for name in kept]
        layer = ", ".join("kernel_size" if name == "kernel_size" else f"{name}={name}" for name in kept)
        defaults = _DEFAULTS
    bias = (("bias", "True"),) if geometry.bias else ()
    arguments = [_typed(name, defaults.get(name, ""), style) for name, _ in settings]
    sentence = rng.choice(
        ("A depthwise 2D convolution: each channel has a filter of its own.", "Filters every channel alone.")
    )
    return Module(
        doc=_doc(sentence, ("in_channels", *[name for name, _ in settings], "bias"), defaults, rng),
        init_args=(_typed("in_channels", "", style), *arguments, _bias_argument(style)),
        init_lines=(
            f"self.{attribute} = nn.Conv2d(in_channels, in_channels, {layer}, groups=in_channels, bias=bias)",
        ),
        forward_args=("x",),
        forward_lines=(f"return self.{attribute}(x)",),
        sizes=(geometry.batch, geometry.in_channels, *geometry.spatial),
        inputs=(_input(rng),),
        init_inputs=("in_channels", *[name for name, _ in settings], *(name for name, _ in bias)),
        constants=(*[(name, str(value)) for name, value in settings], *bias),
        forward_doc=forward_doc(geometry, rng),
    )


def _separable_module(
    geometry: Geometry, style: Style, attributes: tuple[str, str], rng: random.Random
) -> Module:
    values = (geometry.kernel, geometry.stride, geometry.padding, geometry.dilation)
    named = {name: str(value[0]) for name, value in zip(_SETTINGS, values, strict=True)}
    arguments = [_typed(name, _DEFAULTS.get(name, ""), style) for name in named]
    bias = (("bias", "True"),) if geometry.bias else ()
    given = ", ".join("kernel_size" if name == "kernel_size" else f"{name}={name}" for name in named)
    depthwise, pointwise = attributes
    sentence = rng.choice(
        ("A separable convolution: first in space, then over channels.", "Depthwise, then pointwise.")
    )
    return Module(
        doc=_doc(sentence, ("in_channels", "out_channels", *named, "bias"), _DEFAULTS, rng),
        init_args=(
            _typed("in_channels", "", style),
            _typed("out_channels", "", style),
            *arguments,
            _bias_argument(style),
        ),
        init_lines=(
            f"self.{depthwise} = nn.Conv2d(in_channels, in_channels, {given}, groups=in_channels, bias=bias)",
            f"self.{pointwise} = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=bias)",
        ),
        forward_args=("x",),
        forward_lines=(f"x = self.{depthwise}(x)", f"x = self.{pointwise}(x)", "return x"),
        sizes=(geometry.batch, geometry.in_channels, geometry.out_channels, *geometry.spatial),
        inputs=(_input(rng),),
        init_inputs=("in_channels", "out_channels", *named, *(name for name, _ in bias)),
        constants=(*named.items(), *bias),
        forward_doc=forward_doc(geometry, rng),
    )


def _doc(sentence: str, names: Sequence[str], defaults: Mapping[str, str], rng: random.Random) -> str:
    """The class docstring, more often with a row for each argument than without."""
    if rng.random() < 0.35:
        return sentence
    rows = [
        described(
            name,
            "bool" if name == "bias" else "int",
            "False" if name == "bias" else defaults.get(name, ""),
            rng,
        )
        for name in names
    ]
    return class_docstring(sentence, rows, rng)


def _typed(name: str, default: str, style: Style) -> str:
    if not style.annotations:
        return f"{name}={default}" if default else name
    return f"{name}: int = {default}" if default else f"{name}: int"


def _bias_argument(style: Style) -> str:
    return "bias: bool = False" if style.annotations else "bias=False"


def _input(rng: random.Random) -> str:
    return f"torch.{rng.choice(('rand', 'randn'))}(batch_size, in_channels, height, width)"
