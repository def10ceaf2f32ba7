"""Triton functions for normalisations with elementwise operators before and behind them."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.problems.modules.convolution.tail_kernels import (
    LOAD,
    MASKED,
    Segment,
    deeper,
    function,
    lines_of,
    parameters,
)


def group_norm_kernel(segment: Segment) -> str:
    """A program a sample and group: two loops for the statistics, one for the results."""
    channel = ["c = first + s // S"]
    pre = lines_of(segment.pre, MASKED)
    return function(
        f"{segment.name}(x_ptr, w_ptr, b_ptr, {parameters(segment)}y_ptr, C, S, G, eps, BLOCK: tl.constexpr)",
        "row = tl.program_id(0)",
        "size = C // G * S",
        "first = row % G * (C // G)",
        "x_ptr += row.to(tl.int64) * size",
        "y_ptr += row.to(tl.int64) * size",
        *_statistics("size", pre, channel if segment.wants_channel(segment.pre) else []),
        "for start in range(0, size, BLOCK):",
        *deeper("s = start + tl.arange(0, BLOCK)", "mask = s < size", *channel, LOAD.replace("@", "s")),
        *deeper(*pre),
        *deeper(f"w = tl.load(w_ptr + c{MASKED})", f"b = tl.load(b_ptr + c{MASKED})"),
        *deeper("v = (v - mean) * rstd * w + b", *lines_of(segment.post, MASKED)),
        "    tl.store(y_ptr + s, v, mask=mask)",
    )


def instance_norm_kernel(segment: Segment) -> str:
    """A program a plane: two loops for the statistics, one for the results."""
    pre = lines_of(segment.pre)
    return function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, S, eps, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        *(["c = plane % C"] if segment.wants_channel() else []),
        "x_ptr += plane.to(tl.int64) * S",
        "y_ptr += plane.to(tl.int64) * S",
        *_statistics("S", pre),
        "for start in range(0, S, BLOCK):",
        *deeper("s = start + tl.arange(0, BLOCK)", "mask = s < S", LOAD.replace("@", "s")),
        *deeper(*pre, "v = (v - mean) * rstd", *lines_of(segment.post)),
        "    tl.store(y_ptr + s, v, mask=mask)",
    )


def batch_norm_kernels(segment: Segment) -> list[str]:
    """Mean and variance of every plane; then each program joins those of its channel and normalises."""
    pre = lines_of(segment.pre)
    own = "".join(f"{name}, " for op in segment.pre for name, _ in op.arguments)
    statistics = function(
        f"{statistics_name(segment)}(x_ptr, {own}mean_ptr, var_ptr, C, S, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        *(["c = plane % C"] if segment.wants_channel(segment.pre) else []),
        "x_ptr += plane.to(tl.int64) * S",
        *_statistics("S", pre)[:-1],
        "tl.store(mean_ptr + plane, mean)",
        "tl.store(var_ptr + plane, tl.sum(square) / S)",
    )
    normalise = function(
        f"{segment.name}(x_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, {parameters(segment)}y_ptr, N, C, S, eps,"
        "\n    BLOCK: tl.constexpr, BLOCK_N: tl.constexpr)",
        "plane = tl.program_id(0)",
        "c = plane % C",
        "n = tl.arange(0, BLOCK_N)",
        "means = tl.load(mean_ptr + n * C + c, mask=n < N, other=0.0)",
        "variances = tl.load(var_ptr + n * C + c, mask=n < N, other=0.0)",
        "mean = tl.sum(means) / N",
        "gap = tl.where(n < N, means - mean, 0.0)",
        "rstd = tl.rsqrt(tl.sum(variances + gap * gap) / N + eps)",
        "s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = s < S",
        "i = plane.to(tl.int64) * S + s",
        LOAD.replace("@", "i"),
        *pre,
        "v = (v - mean) * rstd * tl.load(w_ptr + c) + tl.load(b_ptr + c)",
        *lines_of(segment.post),
        "tl.store(y_ptr + i, v, mask=mask)",
    )
    return [statistics, normalise]


def statistics_name(segment: Segment) -> str:
    """The name of the kernel for the statistics: each batch norm has one of its own."""
    return segment.name.replace("normalize", "plane_stats")


def layer_norm_kernel(segment: Segment) -> str:
    """A program several rows of the last axis, each whole in the tile."""
    channel = "c = (r // (S // W) % C)[:, None]"
    return function(
        f"{segment.name}(x_ptr, w_ptr, b_ptr, {parameters(segment)}y_ptr, rows, C, S, W, eps,"
        "\n    BLOCK_R: tl.constexpr, BLOCK_W: tl.constexpr)",
        "r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)",
        "k = tl.arange(0, BLOCK_W)",
        "mask = (r[:, None] < rows) & (k[None, :] < W)",
        *([channel] if segment.wants_channel() else []),
        "i = r[:, None].to(tl.int64) * W + k[None, :]",
        LOAD.replace("@", "i"),
        *lines_of(segment.pre),
        "v = tl.where(mask, v, 0.0)",
        "mean = tl.sum(v, axis=1)[:, None] / W",
        "d = tl.where(mask, v - mean, 0.0)",
        "rstd = tl.rsqrt(tl.sum(d * d, axis=1)[:, None] / W + eps)",
        "w = tl.load(w_ptr + k, mask=k < W, other=0.0)[None, :]",
        "b = tl.load(b_ptr + k, mask=k < W, other=0.0)[None, :]",
        "v = d * rstd * w + b",
        *lines_of(segment.post),
        "tl.store(y_ptr + i, v, mask=mask)",
    )


def _statistics(size: str, pre: Sequence[str], channel: Sequence[str] = ()) -> list[str]:
    """Lines for `mean` and `rstd` of a row of `size` values after the statements `pre`.

    Two passes: the mean of squares less the square of the mean loses all digits where values hardly differ.
    """
    values = [
        *deeper("s = start + tl.arange(0, BLOCK)", f"mask = s < {size}", *channel, LOAD.replace("@", "s")),
        *deeper(*pre),
    ]
    return [
        "total = tl.zeros((BLOCK,), dtype=tl.float32)",
        f"for start in range(0, {size}, BLOCK):",
        *values,
        "    total += tl.where(mask, v, 0.0)" if pre else "    total += v",
        f"mean = tl.sum(total) / {size}",
        "square = tl.zeros((BLOCK,), dtype=tl.float32)",
        f"for start in range(0, {size}, BLOCK):",
        *values,
        "    d = tl.where(mask, v - mean, 0.0)",
        "    square += d * d",
        f"rstd = tl.rsqrt(tl.sum(square) / {size} + eps)",
    ]
