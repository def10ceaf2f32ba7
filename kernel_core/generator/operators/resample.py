"""Interpolation of images to other sizes."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import add, cast, iota, mul, point, reduce, reshape, sub
from kernel_core.generator.ir import Unsupported, Value
from kernel_core.generator.names import bind
from kernel_core.generator.operators.layout import repeat_interleave
from kernel_core.generator.operators.parts import gather_rows
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Number, Size, host

_LINEAR = ("linear", "bilinear", "trilinear")
_NEAREST = ("nearest", "nearest-exact")
_STEEPNESS = -0.75
"""Coefficient of torch's bicubic weights."""


@operator("interpolate", "upsample", "upsample_nearest")
def _interpolate(
    input: Value, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: Any = None, recompute_scale_factor: Any = None, antialias: bool = False,
) -> Value:  # fmt: skip
    space = input.rank - 2
    is_one_factor = isinstance(scale_factor, int | float)
    factors = (scale_factor,) * space if is_one_factor else tuple(scale_factor or ())
    sizes = (size,) * space if isinstance(size, int) else tuple(size or ())
    if antialias or recompute_scale_factor or mode not in (*_LINEAR, *_NEAREST, "bicubic"):
        raise Unsupported(f"interpolation {mode} to these sizes")
    given: list[Any] = [_whole(factor) for factor in factors] or [None] * space
    outs: list[Any] = [
        sizes[axis] if given[axis] is None else _scaled(input.shape[2 + axis], given[axis])
        for axis in range(space)
    ]
    for axis, (out, factor) in enumerate(zip(outs, given, strict=True)):
        at = 2 + axis
        if mode == "nearest" and isinstance(factor, int):
            input = repeat_interleave(input, factor, at)
        elif host(input.shape[at]) != host(out):
            resized = _nearest if mode in _NEAREST else _cubic if mode == "bicubic" else _linear
            is_other = mode == "nearest-exact" or bool(align_corners)
            input = resized(input, at, bind(out, f"out_{axis}"), factor, is_other)
    return input


def _whole(factor: Any) -> Any:
    """The factor, as a whole number if it has no fraction."""
    is_whole = isinstance(factor, float) and float(factor) == int(factor)
    return int(factor) if is_whole else factor


def _scaled(size: Any, factor: Any) -> Any:
    """The size times a factor, without its fraction."""
    if isinstance(factor, int):
        return size * factor
    return Size(int(int(size) * factor), f"int({host(size)} * {host(factor)})")


def _places(x: Value, at: int, out: Any, factor: Any, aligned: bool) -> Value:
    """Places of the results of an axis among the elements; a pixel is its middle, or corners are aligned."""
    size = x.shape[at]
    place = cast(iota((out,), 0, torch.int64), torch.float32)
    if aligned:
        return mul(place, (size - 1) / (out - 1) if int(out) > 1 else 0.0)
    return sub(mul(add(place, 0.5), _ratio(size, out, factor)), 0.5)


def _ratio(size: Any, out: Any, factor: Any) -> Any:
    """Elements of an axis for each result: by the factor where one is given, else by the sizes."""
    return size / out if factor is None else Number(1.0, "1.0") / factor


def _nearest(x: Value, at: int, out: Any, factor: Any, exact: bool) -> Value:
    """One axis at another size, by the element at the start or, if exact, the middle of each place."""
    size = x.shape[at]
    place = cast(iota((out,), 0, torch.int64), torch.float32)
    place = mul(add(place, 0.5) if exact else place, _ratio(size, out, factor))
    return gather_rows(x, at, point("minimum", cast(place, torch.int64), size - 1))


def _linear(x: Value, at: int, out: Any, factor: Any, aligned: bool) -> Value:
    """One axis at another size, between the two elements next to each place."""
    size = x.shape[at]
    place = point("maximum", _places(x, at, out, factor, aligned), 0.0)
    first = point("minimum", cast(place, torch.int64), size - 1)
    second = point("minimum", add(first, 1), size - 1)
    weight = _along(x, at, sub(place, first))
    low, high = (gather_rows(x, at, index) for index in (first, second))
    return point("lerp", low, high, weight)


def _cubic(x: Value, at: int, out: Any, factor: Any, aligned: bool) -> Value:
    """One axis at another size, by a cubic of the four elements around each place (Keys, 1981)."""
    place = reshape(_places(x, at, out, factor, aligned), [out, 1])
    start, step = point("floor", place), sub(iota((4,), 0, torch.int64), 1)
    index = point("maximum", add(cast(start, torch.int64), step), 0)
    index = point("minimum", index, x.shape[at] - 1)
    weight = _along(x, at, _cubic_weight(point("abs", sub(sub(place, start), step))))
    return reduce(mul(gather_rows(x, at, index), weight), "sum", at + 1)


def _cubic_weight(distance: Value) -> Value:
    """Weight of an element at a distance up to 2."""
    a, square = _STEEPNESS, mul(distance, distance)
    near = add(mul(sub(mul(distance, a + 2), a + 3), square), 1.0)
    far = mul(sub(mul(add(square, mul(distance, -5.0)), distance), sub(4.0, mul(distance, 8.0))), a)
    return point("where", point("le", distance, 1.0), near, far)


def _along(x: Value, at: int, weight: Value) -> Value:
    """Weights of the places of an axis, in the type and rank of the tensor."""
    return cast(reshape(weight, [*weight.shape, *[1] * (x.rank - at - 1)]), x.dtype)
