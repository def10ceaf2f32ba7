"""Interpolation of images to other sizes."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import add, cast, iota, mul, point, reshape, sub
from kernel_core.generator.ir import Unsupported, Value
from kernel_core.generator.names import bind
from kernel_core.generator.operators.layout import repeat_interleave
from kernel_core.generator.operators.parts import gather_rows
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Number, host

_LINEAR = ("linear", "bilinear", "trilinear")


@operator("interpolate", "upsample", "upsample_nearest")
def _interpolate(
    input: Value, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: Any = None, recompute_scale_factor: Any = None, antialias: bool = False,
) -> Value:  # fmt: skip
    space = input.rank - 2
    factors = (scale_factor,) * space if isinstance(scale_factor, int | float) else tuple(scale_factor or ())
    sizes = (size,) * space if isinstance(size, int) else tuple(size or ())
    is_whole = all(float(factor) == int(factor) for factor in factors)
    if antialias or not is_whole or mode not in (*_LINEAR, *(() if sizes else ("nearest",))):
        raise Unsupported(f"interpolation {mode} to these sizes")
    for axis in range(space):
        at = 2 + axis
        factor: Any = None if sizes else factors[axis]
        factor = int(factor) if isinstance(factor, float) else factor
        if mode == "nearest":
            input = repeat_interleave(input, factor, at)
        else:
            out: Any = sizes[axis] if factor is None else input.shape[at] * factor
            input = _linear(input, at, bind(out, f"out_{axis}"), factor, bool(align_corners))
    return input


def _linear(x: Value, at: int, out: Any, factor: Any, aligned: bool) -> Value:
    """One axis at another size, between the two elements next to each place."""
    size = x.shape[at]
    if host(size) == host(out):
        return x
    place = cast(iota((out,), 0, torch.int64), torch.float32)
    if aligned:
        place = mul(place, (size - 1) / (out - 1) if int(out) > 1 else 0.0)
    else:
        ratio = size / out if factor is None else Number(1.0, "1.0") / factor
        place = point("maximum", sub(mul(add(place, 0.5), ratio), 0.5), 0.0)
    first = point("minimum", cast(place, torch.int64), size - 1)
    second = point("minimum", add(first, 1), size - 1)
    weight = reshape(sub(place, first), [out, *[1] * (x.rank - at - 1)])
    low, high = (gather_rows(x, at, index) for index in (first, second))
    return point("lerp", low, high, cast(weight, x.dtype))
