"""Axes: maps of indices, folded into the loads of the kernels that read them."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import expand, mul, permute, reshape, unsqueeze
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import product


def sizes_of(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes that come one by one or as one tuple."""
    if len(given) == 1 and isinstance(given[0], tuple | list):
        return tuple(given[0])
    return given


@operator("view", "reshape", "_unsafe_view")
def _view(x: Value, *shape: Any, **named: Any) -> Value:
    sizes = sizes_of(shape or tuple(named.values()))
    if any(isinstance(size, torch.dtype) for size in sizes):
        raise Unsupported("a view as another type")
    return reshape(x, sizes)


operator("view_as", "reshape_as")(lambda x, other: reshape(x, other.shape))


@operator("flatten")
def flatten(x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Several axes as one."""
    if x.rank == 0:
        return reshape(x, (1,))
    first, last = x.axis(start_dim), x.axis(end_dim)
    return reshape(x, [*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]])


operator("ravel")(lambda x: flatten(x))


@operator("unflatten")
def _unflatten(x: Value, dim: int, sizes: Any) -> Value:
    at, sizes = x.axis(dim), list(sizes)
    inner = reshape(make("leaf", (), (x.shape[at],), x.dtype, text=""), sizes).shape
    return reshape(x, [*x.shape[:at], *inner, *x.shape[at + 1 :]])


operator("unsqueeze")(lambda x, dim: unsqueeze(x, dim))


@operator("squeeze")
def _squeeze(x: Value, *dims: Any, dim: Any = None) -> Value:
    given = sizes_of(dims) if dims else () if dim is None else sizes_of((dim,))
    axes = {x.axis(dim) for dim in given} if given else set(range(x.rank))
    return reshape(x, [size for axis, size in enumerate(x.shape) if axis not in axes or int(size) != 1])


operator("permute")(lambda x, *dims, **named: permute(x, sizes_of(dims or tuple(named.values()))))


@operator("transpose", "swapaxes", "swapdims")
def transpose(x: Value, dim0: int, dim1: int) -> Value:
    """Two axes in each other's place."""
    order = list(range(x.rank))
    if x.rank:
        first, second = x.axis(dim0), x.axis(dim1)
        order[first], order[second] = order[second], order[first]
    return permute(x, order)


operator("t", "T", "numpy_T")(lambda x: permute(x, tuple(reversed(range(x.rank)))))
operator("mT", "adjoint", "mH", "H")(lambda x: transpose(x, -1, -2))


@operator("movedim", "moveaxis")
def _movedim(x: Value, source: Any, destination: Any) -> Value:
    sources = [x.axis(dim) for dim in (source if isinstance(source, tuple | list) else (source,))]
    targets = [
        x.axis(dim) for dim in (destination if isinstance(destination, tuple | list) else (destination,))
    ]
    rest = iter(axis for axis in range(x.rank) if axis not in sources)
    back = dict(zip(targets, sources, strict=True))
    return permute(x, [back[axis] if axis in back else next(rest) for axis in range(x.rank)])


operator("expand", "broadcast_to")(lambda x, *sizes, **_: expand(x, sizes_of(sizes)))
operator("expand_as")(lambda x, other: expand(x, other.shape))


@operator("repeat", "tile")
def _repeat(x: Value, *repeats: Any, dims: Any = None) -> Value:
    times = list(sizes_of(repeats) if repeats else dims)
    times = [1] * (x.rank - len(times)) + times
    lead = len(times) - x.rank
    shape = [*([1] * lead), *x.shape]
    value = reshape(x, [part for size in shape for part in (1, size)])
    value = expand(value, [part for n, size in zip(times, shape, strict=True) for part in (n, size)])
    return reshape(value, [size * n for n, size in zip(times, shape, strict=True)])


@operator("repeat_interleave")
def repeat_interleave(x: Value, repeats: Any, dim: Any = None, **_: Any) -> Value:
    """Each element of an axis several times."""
    if isinstance(repeats, Value):
        raise Unsupported("repeats that are a tensor")
    if dim is None:
        x, dim = flatten(x), 0
    at = x.axis(dim)
    value = reshape(x, [*x.shape[: at + 1], 1, *x.shape[at + 1 :]])
    value = expand(value, [*x.shape[: at + 1], repeats, *x.shape[at + 1 :]])
    return reshape(value, [*x.shape[:at], x.shape[at] * repeats, *x.shape[at + 1 :]])


@operator("flip")
def _flip(x: Value, *dims: Any, **named: Any) -> Value:
    axes = tuple({x.axis(dim) for dim in sizes_of(dims or tuple(named.values()))})
    return make("flip", (x,), x.shape, x.dtype, dims=axes) if axes else x


operator("fliplr")(lambda x: _flip(x, 1))
operator("flipud")(lambda x: _flip(x, 0))


@operator("rot90")
def _rot90(x: Value, k: int = 1, dims: Any = (0, 1)) -> Value:
    first, second = dims
    turns = int(k) % 4
    if turns == 0:
        return x
    if turns == 2:
        return _flip(x, first, second)
    return (
        _flip(transpose(x, first, second), first) if turns == 1 else transpose(_flip(x, first), first, second)
    )


@operator("roll")
def _roll(x: Value, shifts: Any, dims: Any = None) -> Value:
    if dims is None or dims == ():
        return reshape(_roll(flatten(x), shifts, 0), x.shape)
    for shift, dim in zip(
        *(given if isinstance(given, tuple | list) else (given,) for given in (shifts, dims)), strict=True
    ):
        x = make("roll", (x,), x.shape, x.dtype, dim=x.axis(dim), shift=shift)
    return x


@operator("pixel_shuffle")
def _pixel_shuffle(x: Value, upscale_factor: int) -> Value:
    *lead, c, h, w = x.shape
    r, n = upscale_factor, len(lead)
    value = reshape(x, [*lead, c // (r * r), r, r, h, w])
    value = permute(value, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return reshape(value, [*lead, c // (r * r), h * r, w * r])


@operator("pixel_unshuffle")
def _pixel_unshuffle(x: Value, downscale_factor: int) -> Value:
    *lead, c, h, w = x.shape
    r, n = downscale_factor, len(lead)
    value = reshape(x, [*lead, c, h // r, r, w // r, r])
    value = permute(value, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return reshape(value, [*lead, c * r * r, h // r, w // r])


@operator("channel_shuffle")
def _channel_shuffle(x: Value, groups: int) -> Value:
    n, c, *space = x.shape
    value = reshape(x, [n, groups, c // groups, *space])
    return reshape(transpose(value, 1, 2), x.shape)


operator("outer", "ger")(lambda x, vec2: mul(unsqueeze(x, 1), vec2))
