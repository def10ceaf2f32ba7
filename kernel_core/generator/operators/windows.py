"""Convolutions and pooling."""

from __future__ import annotations

import functools
from typing import Any

import torch

from kernel_core.generator.build import add, cast, div, iota, mean, mul, point, reduce, reshape, sub
from kernel_core.generator.index import AXES
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.names import bind, unify
from kernel_core.generator.operators.parts import gather_rows
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Number, Size, ceil_div, host, is_named, product


def _each(value: Any, n: int) -> tuple[Any, ...]:
    if isinstance(value, int):
        return (value,) * n
    return tuple(value) * n if len(value) == 1 else tuple(value)


def _bound(space: list[Any]) -> list[Any]:
    """Sizes of space under names of the host."""
    names = AXES[len(space) + 2][2:]
    return [bind(size, f"out_{name}") for size, name in zip(space, names, strict=True)]


def _convolution(rank: int) -> Any:
    def build(
        input: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1,
    ) -> Value:  # fmt: skip
        if input.rank != rank + 2 or not input.dtype.is_floating_point:
            raise Unsupported("a convolution without a batch or of integers")
        steps, spread = _each(stride, rank), _each(dilation, rank)
        unify(input.shape[1], weight.shape[1] * groups)
        if padding == "valid":
            padding = 0
        if padding == "same":
            padding = tuple(d * (k - 1) // 2 for d, k in zip(spread, weight.shape[2:], strict=True))
            if any(int(d) * (int(k) - 1) % 2 for d, k in zip(spread, weight.shape[2:], strict=True)):
                raise Unsupported("padding that differs on both sides")
        edges = _each(padding, rank)
        space = [
            _out(size, k, s, p, d)
            for size, k, s, p, d in zip(input.shape[2:], weight.shape[2:], steps, edges, spread, strict=True)
        ]
        shape = [input.shape[0], weight.shape[0], *_bound(space)]
        form = {"stride": steps, "padding": edges, "dilation": spread, "groups": groups}
        form |= {"kernel": weight.shape[2:], "channels": weight.shape[1], "is_tiled": False}
        value = make("conv", (input, weight), shape, input.dtype, transposed=False, **form)
        return value if bias is None else add(value, reshape(bias, [bias.shape[0], *([1] * rank)]))

    return build


def _out(size: Any, k: Any, s: Any, p: Any, d: Any) -> Any:
    is_dense = int(s) == 1 and not is_named(s)
    if int(d) == 1 and not is_named(d):
        return size + 2 * p - k + 1 if is_dense else (size + 2 * p - k) // s + 1
    span = size + 2 * p - d * (k - 1)
    return span if is_dense else (span - 1) // s + 1


def _out_with_partial(size: Any, k: Any, s: Any, p: Any, d: Any) -> Any:
    """Windows along an axis where the last one may reach beyond the edge but must begin inside."""
    whole = ceil_div(size + 2 * p - d * (k - 1) - 1, s) + 1
    begun = (size + p - 1) // s + 1
    return Size(min(int(whole), int(begun)), f"min({host(whole)}, {host(begun)})")


def _counted(x: Value, space: Any, form: dict[str, Any], lead: int, with_padding: bool) -> Value:
    """Elements of each window: those inside, with those of the padding if they count."""
    total: Any = None
    for axis, places in enumerate(space):
        size, pad = x.shape[lead + axis], form["padding"][axis]
        first = sub(mul(iota((places,), 0, torch.int64), form["stride"][axis]), pad)
        last = point("minimum", add(first, form["kernel"][axis]), size + pad)
        if not with_padding:
            first, last = point("maximum", first, 0), point("minimum", last, size)
        own = reshape(sub(last, first), [places, *([1] * (len(space) - 1 - axis))])
        total = own if total is None else mul(total, own)
    return cast(total, x.dtype)


def _transposed(rank: int) -> Any:
    def build(
        input: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Value:  # fmt: skip
        if input.rank != rank + 2 or not input.dtype.is_floating_point:
            raise Unsupported("a convolution without a batch or of integers")
        steps, edges, spread, extra = (
            _each(given, rank) for given in (stride, padding, dilation, output_padding)
        )
        space = [
            (size - 1) * s - 2 * p + (k if int(d) == 1 and not is_named(d) else d * (k - 1) + 1) + o
            for size, k, s, p, d, o in zip(
                input.shape[2:], weight.shape[2:], steps, edges, spread, extra, strict=True
            )
        ]
        space = _bound(space)
        shape = [input.shape[0], bind(weight.shape[1] * groups, "OC"), *space]
        form = {"stride": steps, "padding": edges, "dilation": spread, "groups": groups}
        form |= {"kernel": weight.shape[2:], "channels": input.shape[1] // groups, "is_tiled": False}
        value = make("conv", (input, weight), shape, input.dtype, transposed=True, **form)
        return value if bias is None else add(value, reshape(bias, [bias.shape[0], *([1] * rank)]))

    return build


def _pool(kind: str, rank: int) -> Any:
    def build(
        input: Value, kernel_size: Any, stride: Any = None, padding: Any = 0, *more: Any, **how: Any
    ) -> Any:
        names = ("dilation", "ceil_mode", "return_indices") if kind == "max" else (
            "ceil_mode", "count_include_pad", "divisor_override",
        )  # fmt: skip
        how |= dict(zip(names, more, strict=False))
        is_partial = bool(how.get("ceil_mode"))
        kernel = _each(kernel_size, rank)
        steps = kernel if stride is None or stride == () else _each(stride, rank)
        edges, spread = _each(padding, rank), _each(how.get("dilation", 1), rank)
        lead = input.rank - rank
        space = [
            _out_with_partial(size, k, s, p, d) if is_partial else _out(size, k, s, p, d)
            for size, k, s, p, d in zip(input.shape[lead:], kernel, steps, edges, spread, strict=True)
        ]
        space = _bound(space)
        counts = how.get("count_include_pad", True) or all(int(p) == 0 for p in edges)
        shape = [*input.shape[:lead], *space]
        form = {
            "kernel": kernel, "stride": steps, "padding": edges, "dilation": spread, "is_partial": is_partial,
        }  # fmt: skip
        if kind == "max":
            value = make("window", (input,), shape, input.dtype, kind="amax", **form)
            if not how.get("return_indices"):
                return value
            return value, make("window", (input,), shape, torch.int64, kind="argmax", **form)
        value = make("window", (input,), shape, input.dtype, kind="sum", **form)
        if (divisor := how.get("divisor_override")) is not None:
            return div(value, divisor)
        if counts and not is_partial:
            return div(value, product(kernel))
        return div(value, _counted(input, space, form, lead, bool(how.get("count_include_pad", True))))

    return build


def _adaptive(kind: str, rank: int) -> Any:
    def build(input: Value, output_size: Any, return_indices: bool = False) -> Value:
        if return_indices:
            raise Unsupported("indices of maxima")
        sizes, lead = _each(output_size, rank), input.rank - rank
        sizes = tuple(input.shape[lead + k] if size is None else size for k, size in enumerate(sizes))
        join = mean if kind == "mean" else functools.partial(reduce, kind="amax")
        if all(int(size) == 1 for size in sizes):
            return join(input, dims=tuple(range(lead, input.rank)), keepdim=True)
        if any(int(size) % int(blocks) for size, blocks in zip(input.shape[lead:], sizes, strict=True)):
            for axis, blocks in enumerate(sizes, lead):
                input = _windows_of_two_sizes(input, axis, blocks, kind)
            return input
        parts = [(blocks, size // blocks) for size, blocks in zip(input.shape[lead:], sizes, strict=True)]
        blocked = reshape(input, [*input.shape[:lead], *(part for pair in parts for part in pair)])
        return join(blocked, dims=tuple(range(lead + 1, input.rank + rank, 2)))

    return build


def _windows_of_two_sizes(x: Value, axis: int, blocks: Any, kind: str) -> Value:
    """Means or maxima of `blocks` windows along an axis, which begin at `i * size // blocks`."""
    size = x.shape[axis]
    number = iota((blocks, 1), 0, torch.int64)
    begin = point("trunc_quotient_int", mul(number, size), blocks)
    end = point("trunc_quotient_int", add(mul(add(number, 1), size), blocks - 1), blocks)
    longest = bind((size + blocks - 1) // blocks + 1, "longest")
    place = add(begin, iota((longest,), 0, torch.int64))
    tail = [1] * (x.rank - axis - 1)
    inside = reshape(point("lt", place, end), [blocks, longest, *tail])
    picked = gather_rows(x, axis, point("minimum", place, size - 1))
    if kind == "amax":
        return reduce(point("where", inside, picked, float("-inf")), "amax", axis + 1)
    total = reduce(point("where", inside, picked, 0.0), "sum", axis + 1)
    return div(total, reshape(sub(end, begin), [blocks, *tail]))


for _rank in (1, 2, 3):
    operator(f"conv{_rank}d")(_convolution(_rank))
    operator(f"conv_transpose{_rank}d")(_transposed(_rank))
    operator(f"max_pool{_rank}d", f"_max_pool{_rank}d")(_pool("max", _rank))
    operator(f"max_pool{_rank}d_with_indices")(functools.partial(_pool("max", _rank), return_indices=True))
    operator(f"avg_pool{_rank}d")(_pool("avg", _rank))
    operator(f"adaptive_avg_pool{_rank}d")(_adaptive("mean", _rank))
    operator(f"adaptive_max_pool{_rank}d")(_adaptive("amax", _rank))


def _lp_pool(rank: int) -> Any:
    def build(
        input: Value, norm_type: Any, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Value:
        powered = point("power", input, float(norm_type)) if norm_type != 2 else point("square", input)
        kernel = _each(kernel_size, rank)
        total = _pool("avg", rank)(powered, kernel, stride, ceil_mode=ceil_mode, divisor_override=1)
        return (
            point("sqrt", total) if norm_type == 2 else point("power", total, Number(1.0, "1.0") / norm_type)
        )

    return build


operator("lp_pool1d")(_lp_pool(1))
operator("lp_pool2d")(_lp_pool(2))
