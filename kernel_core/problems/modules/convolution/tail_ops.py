"""Operators behind a convolution: their text in torch and a model of their values."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernel_core.problems.modules.convolution import tail_values
from kernel_core.problems.modules.convolution.tail_values import Values
from kernel_core.problems.modules.style import unused

Kind = Literal[
    "pointwise", "channel", "keep", "residual", "second", "group_norm", "instance_norm", "batch_norm",
    "layer_norm", "reduce_channels", "reduce_depth", "softmax", "softmax_space", "center_space",
    "reduce_space", "reduce_sample", "pool",
]  # fmt: skip
_KEPT = ("identity", "original_x", "residual", "conv_out", "skip", "shortcut", "saved", "kept")
ELEMENTWISE: tuple[Kind, ...] = ("pointwise", "channel", "keep", "residual", "second")


@dataclass(frozen=True)
class Op:
    """One operator of a chain."""

    operator: str
    kind: Kind
    torch: tuple[str, ...]
    value: Callable[[Values], Values]
    init_args: tuple[str, ...] = ()
    init_lines: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    detail: str = ""
    """The reduction, such as `max`."""
    attribute: str = ""
    keep: bool = True
    """True if reduced axes stay as axes of extent one."""
    window: tuple[int, ...] = ()
    """Extent of a pool along each axis."""


_BY_CHANNEL = (
    ("bias_add", "+", ("bias", "shift_param", "channel_bias", "extra_bias", "bias_term")),
    ("channel_mul", "*", ("weight", "gain", "channel_scale")),
    ("channel_sub", "-", ("subtrahend", "center")),
)


def draw_channel(rng: random.Random, taken: set[str], rank: int, signs: str = "+-*") -> Op:
    """Arithmetic with a parameter that has one value for each channel, or one for all; `signs` narrows it."""
    if len(signs) > 1 and rng.random() < 0.2:
        return draw_one_value(rng, taken, rank)
    name, sign, names = rng.choice([form for form in _BY_CHANNEL if form[1] in signs])
    attribute = unused(names, rng, taken)
    ones = ", 1" * rank
    shape_name = f"{attribute}_shape"
    form = rng.randrange(4)
    drawn = (
        f"torch.randn({shape_name})",
        f"torch.randn(1, out_channels{ones})",
        f"torch.randn(out_channels{ones})",
        "torch.randn(out_channels)",
    )
    viewed = rng.choice((f".view(1, -1{ones})", f".view(1, out_channels{ones})", f".reshape(1, -1{ones})"))
    viewed = viewed.replace("out_channels", f"self.{attribute}.numel()") if form == 3 else ""
    return Op(
        name,
        "channel",
        (f"x = x {sign} self.{attribute}{viewed}",),
        lambda x: tail_values.by_channel(sign, x),
        init_args=(shape_name,) if form == 0 else (),
        init_lines=(f"self.{attribute} = nn.Parameter({drawn[form]})",),
        settings=((shape_name, f"(out_channels{ones})"),) if form == 0 else (),
    )


def draw_one_value(rng: random.Random, taken: set[str], rank: int) -> Op:
    """Arithmetic with a parameter of one value, with or without axes of extent one."""
    ones = ", 1" * rank
    extent = rng.choice(("1", "1", f"1{ones}", f"1, 1{ones}"))
    sign = rng.choice("+*")
    attribute = unused(
        ("gate", "level", "common_bias") if sign == "+" else ("gain_all", "amplitude"), rng, taken
    )
    return Op(
        "scalar_add" if sign == "+" else "scalar_mul",
        "pointwise",
        (f"x = x {sign} self.{attribute}",),
        lambda x: x + 0.9 if sign == "+" else x * 0.9,
        init_lines=(f"self.{attribute} = nn.Parameter(torch.randn({extent}))",),
    )


def draw_second(rng: random.Random, taken: set[str]) -> Op:
    """A second tensor input of the shape that the convolution's result has."""
    name = unused(("add_input", "other", "skip_input", "y_in"), rng, taken)
    sign = rng.choice(("+", "+", "+", "*"))
    return Op(
        "add_tensor" if sign == "+" else "mul_tensor",
        "second",
        (rng.choice((f"x = x {sign} {name}", f"x = {name} {sign} x")),),
        lambda x: x + np.roll(x, 7) if sign == "+" else x * np.roll(x, 7),
        attribute=name,
    )


def draw_keep(rng: random.Random, taken: set[str]) -> Op:
    """The present value under a name; a residual uses it later."""
    name = unused(_KEPT, rng, taken)
    copied = rng.choice(("x", "x", "x.clone()", "x.clone().detach()"))
    line = f"{name} = {copied}"
    return Op("", "keep", (line,), lambda x: x, attribute=name)


def draw_residual(rng: random.Random, kept: Op) -> Op:
    """A kept value, added or multiplied."""
    name, sign = kept.attribute, rng.choice("++*")
    return Op(
        "residual_add" if sign == "+" else "residual_mul",
        "residual",
        (rng.choice((f"x = x {sign} {name}", f"x = {name} {sign} x")),),
        lambda x: x + 0.5 if sign == "+" else x * 0.5,
        attribute=name,
    )


def draw_norm(rng: random.Random, taken: set[str], rank: int, kind: Kind) -> Op:
    """A normalisation with torch's layer."""
    layer = {"group_norm": "GroupNorm", "instance_norm": f"InstanceNorm{rank}d",
             "batch_norm": f"BatchNorm{rank}d", "layer_norm": "LayerNorm"}[kind]  # fmt: skip
    attribute = unused((kind, "norm", f"{kind}_1"), rng, taken)
    groups = unused(("num_groups", "groups", "norm_groups"), rng, taken) if kind == "group_norm" else ""
    grouped = rng.choice((f"{groups}, out_channels", f"num_groups={groups}, num_channels=out_channels"))
    given = {"group_norm": grouped, "layer_norm": "norm_size"}.get(kind, "out_channels")
    names = {"group_norm": (groups,), "layer_norm": ("norm_size",)}.get(kind, ())
    settings = ((groups, str(rng.choice((2, 4, 8)))),) if kind == "group_norm" else ()
    taken.update(names)
    return Op(
        kind,
        kind,
        (f"x = self.{attribute}(x)",),
        tail_values.standardised(kind),
        init_args=names,
        init_lines=(f"self.{attribute} = nn.{layer}({given})",),
        settings=settings,
        attribute=attribute,
    )


def draw_reduction(rng: random.Random, taken: set[str], rank: int, kind: Kind, last: bool) -> Op:
    """A reduction over channels, over depth, over space, or over all but the batch."""
    keep = kind == "reduce_channels" and (not last or rng.random() < 0.5)
    keep = keep or (kind == "reduce_space" and (not last or rng.random() < 0.6))
    keep = keep or (kind == "reduce_sample" and rng.random() < 0.25)
    if kind == "reduce_channels":
        detail = rng.choice(("sum", "mean", "max", "min", "logsumexp"))
        axis = "1"
    elif kind == "reduce_depth":
        detail, axis = rng.choice(("mean", "max", "min", "sum")), "2"
        keep = rng.random() < 0.5
    else:
        detail = rng.choices(("mean", "sum", "amax", "amin"), (5, 3, 1, 1))[0]
        axis = _several_axes(rng, rank, kind)
    kept = ", keepdim=True" if keep else ""
    named: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    if kind in ("reduce_channels", "reduce_depth") and rng.random() < 0.15:
        named = (unused(("dim", "reduce_dim", "axis"), rng, taken),)
        settings = ((named[0], axis),)
        axis = f"self.{named[0]}"
    line = f"x = torch.{detail}(x, dim={axis}{kept})"
    if detail not in ("max", "min", "logsumexp") and rng.random() < 0.35:
        line = f"x = x.{detail}(dim={axis}{kept})"
    if detail in ("max", "min"):
        line = rng.choice((f"{line}[0]", f"{line}.values"))
    init: tuple[str, ...] = ()
    if kind == "reduce_space" and keep and detail == "mean" and rng.random() < 0.5:
        attribute = unused(("global_pool", "gap", "global_avg_pool", "avgpool", "squeeze"), rng, taken)
        extent = rng.choice(("1", f"({', '.join('1' * rank)})"))
        init = (f"self.{attribute} = nn.AdaptiveAvgPool{rank}d({extent})",)
        line = f"x = self.{attribute}(x)"
    lines = [line]
    if kind == "reduce_space" and not keep and detail == "mean" and rng.random() < 0.4:
        squeezed = f"x = x{'.squeeze(-1)' * rank}"
        lines = [f"x = F.adaptive_avg_pool{rank}d(x, 1)", rng.choice((squeezed, "x = x.flatten(1)"))]
    if kind == "reduce_channels":
        value = tail_values.reduced(detail)
    else:
        value = (
            tail_values.pooled(detail) if kind == "reduce_depth" else tail_values.summed_space(kind, detail)
        )
    return Op(
        f"{kind}_{detail}",
        kind,
        tuple(lines),
        value,
        init_args=named,
        init_lines=(*(f"self.{name} = {name}" for name in named), *init),
        settings=settings,
        detail=detail,
        keep=keep,
    )


def _several_axes(rng: random.Random, rank: int, kind: Kind) -> str:
    """All axes of space, or all but the batch: a tuple or a list, at times counted from behind."""
    count = rank + (kind == "reduce_sample")
    first = 2 - (kind == "reduce_sample")
    backwards = rng.random() < 0.2
    axes = ", ".join(str(place - count if backwards else first + place) for place in range(count))
    spaced = axes if rng.random() < 0.8 else axes.replace(" ", "")
    return f"({spaced})" if rng.random() < 0.5 else f"[{spaced}]"


def draw_softmax(rng: random.Random, taken: set[str]) -> Op:
    """Softmax over channels."""
    if rng.random() < 0.3:
        attribute = unused(("softmax", "channel_softmax"), rng, taken)
        init: tuple[str, ...] = (f"self.{attribute} = nn.Softmax(dim=1)",)
        return Op("softmax", "softmax", (f"x = self.{attribute}(x)",), tail_values.softmax, init_lines=init)
    line = f"x = {rng.choice(('torch', 'F'))}.softmax(x, dim=1)"
    return Op("softmax", "softmax", (line,), tail_values.softmax)


def draw_softmax_space(rng: random.Random, rank: int) -> Op:
    """Softmax over all pixels of a channel, through a view with one axis for them."""
    names = "b, c, d, h, w" if rank == 3 else rng.choice(("b, c, h, w", "n, c, h, w"))
    dim = rng.choice(("2", "2", "-1"))
    call = rng.choice(("torch.softmax", "F.softmax"))
    long = (
        f"{names} = x.shape",
        f"x = x.view({names[0]}, c, -1)",
        f"x = {call}(x, dim={dim})",
        f"x = x.view({names})",
    )
    short = (f"x = {call}(x.flatten(2), dim={dim}).view(x.shape)",)
    middle = (
        "shape = x.shape",
        f"x = {call}(x.flatten(start_dim=2), dim={dim})",
        "x = x.reshape(shape)",
    )
    return Op(
        "softmax_space", "softmax_space", rng.choice((long, long, short, middle)), tail_values.softmax_space
    )


def draw_center(rng: random.Random, rank: int) -> Op:
    """The difference to the plane's own mean."""
    axes = ", ".join(str(2 + place) for place in range(rank))
    axes = rng.choice((f"({axes})", f"[{axes}]"))
    mean = rng.choice((f"torch.mean(x, dim={axes}, keepdim=True)", f"x.mean(dim={axes}, keepdim=True)"))
    return Op("sub_mean", "center_space", (f"x = x - {mean}",), tail_values.centred)


def draw_trivial(rng: random.Random, axes: str, details: tuple[str, ...]) -> Op:
    """A reduction that keeps axes which have one entry already: it changes nothing."""
    detail = rng.choice(details)
    ending = rng.choice(("[0]", ".values")) if detail in ("max", "min") else ""
    line = f"x = torch.{detail}(x, dim={axes}, keepdim=True){ending}"
    return Op(f"{detail}_of_one", "pointwise", (line,), lambda x: x)
