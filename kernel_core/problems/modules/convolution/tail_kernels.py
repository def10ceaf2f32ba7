"""Triton functions for the segments of a chain: one core operator with elementwise operators around it.

A tensor is seen as (N, C, S): images, channels, pixels. `c` is the channel of the values in `v`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.convolution.gemm_kernels import axes, flat_index, indented, split_lines
from kernel_core.problems.modules.convolution.geometry import LETTERS
from kernel_core.problems.modules.convolution.tail_ops import Op

_MASKED = ", mask=mask, other=0.0"
_LOAD = f"v = tl.load(x_ptr + @{_MASKED})"


@dataclass(frozen=True)
class Segment:
    """Elementwise operators, at most one core operator, elementwise operators."""

    name: str
    pre: tuple[Op, ...]
    core: Op | None
    post: tuple[Op, ...]

    @property
    def kind(self) -> str:
        """The core's kind; `flat` without a core."""
        return self.core.kind if self.core else "flat"

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Parameters of the elementwise operators, each once."""
        return tuple(dict.fromkeys(pair for op in (*self.pre, *self.post) for pair in op.arguments))

    def wants_channel(self, ops: Sequence[Op] | None = None) -> bool:
        """Whether some operator indexes by channel."""
        return any(op.kind == "channel" for op in (ops if ops is not None else (*self.pre, *self.post)))


def lines_of(ops: Sequence[Op], mask: str = "") -> list[str]:
    """Statements of elementwise operators; `mask` completes their loads."""
    return [line.replace("{mask}", mask) for op in ops for line in op.tile]


def parameters(segment: Segment) -> str:
    """The segment's own parameters, as text that ends in a comma and a space."""
    return "".join(f"{name}, " for name, _ in segment.arguments)


def flat_kernel(segment: Segment) -> str:
    """A program handles a tile of one plane, so its channel is one number."""
    ops = (*segment.pre, *segment.post)
    if not segment.wants_channel():
        return _function(
            f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, count, BLOCK: tl.constexpr)",
            "i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "mask = i < count",
            _LOAD.replace("@", "i"),
            *_raw(ops),
            *lines_of(ops),
            "tl.store(y_ptr + i, v, mask=mask)",
        )
    return _function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, S, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        "c = plane % C",
        "s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = s < S",
        "i = plane.to(tl.int64) * S + s",
        _LOAD.replace("@", "i"),
        *_raw(ops),
        *lines_of(ops),
        "tl.store(y_ptr + i, v, mask=mask)",
    )


def group_norm_kernel(segment: Segment) -> str:
    """A program a sample and group: one loop for the statistics, one for the results."""
    channel = ["c = first + s // S"]
    pre = lines_of(segment.pre, _MASKED)
    return _function(
        f"{segment.name}(x_ptr, w_ptr, b_ptr, {parameters(segment)}y_ptr, C, S, G, eps, BLOCK: tl.constexpr)",
        "row = tl.program_id(0)",
        "size = C // G * S",
        "first = row % G * (C // G)",
        "x_ptr += row.to(tl.int64) * size",
        "y_ptr += row.to(tl.int64) * size",
        *_statistics("size", segment.pre, pre, channel if segment.wants_channel(segment.pre) else []),
        "for start in range(0, size, BLOCK):",
        *_deeper("s = start + tl.arange(0, BLOCK)", "mask = s < size", *channel, _LOAD.replace("@", "s")),
        *_deeper(*_raw((*segment.pre, *segment.post)), *pre),
        *_deeper(f"w = tl.load(w_ptr + c{_MASKED})", f"b = tl.load(b_ptr + c{_MASKED})"),
        *_deeper("v = (v - mean) * rstd * w + b", *lines_of(segment.post, _MASKED)),
        "    tl.store(y_ptr + s, v, mask=mask)",
    )


def instance_norm_kernel(segment: Segment) -> str:
    """A program a plane: one loop for the statistics, one for the results."""
    pre = lines_of(segment.pre)
    return _function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, S, eps, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        *(["c = plane % C"] if segment.wants_channel() else []),
        "x_ptr += plane.to(tl.int64) * S",
        "y_ptr += plane.to(tl.int64) * S",
        *_statistics("S", segment.pre, pre),
        "for start in range(0, S, BLOCK):",
        *_deeper("s = start + tl.arange(0, BLOCK)", "mask = s < S", _LOAD.replace("@", "s")),
        *_deeper(
            *_raw((*segment.pre, *segment.post)), *pre, "v = (v - mean) * rstd", *lines_of(segment.post)
        ),
        "    tl.store(y_ptr + s, v, mask=mask)",
    )


def batch_norm_kernels(segment: Segment) -> list[str]:
    """Mean and variance of every plane; then each program joins those of its channel and normalises."""
    pre = lines_of(segment.pre)
    own = "".join(f"{name}, " for op in segment.pre for name, _ in op.arguments)
    statistics = _function(
        f"plane_stats_kernel(x_ptr, {own}mean_ptr, var_ptr, C, S, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        *(["c = plane % C"] if segment.wants_channel(segment.pre) else []),
        "x_ptr += plane.to(tl.int64) * S",
        *_statistics("S", segment.pre, pre)[:-1],
        "tl.store(mean_ptr + plane, mean)",
        "tl.store(var_ptr + plane, tl.sum(square) / S - mean * mean)",
    )
    normalise = _function(
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
        _LOAD.replace("@", "i"),
        *_raw((*segment.pre, *segment.post)),
        *pre,
        "v = (v - mean) * rstd * tl.load(w_ptr + c) + tl.load(b_ptr + c)",
        *lines_of(segment.post),
        "tl.store(y_ptr + i, v, mask=mask)",
    )
    return [statistics, normalise]


def layer_norm_kernel(segment: Segment) -> str:
    """A program several rows of the last axis, each whole in the tile."""
    channel = "c = (r // (S // W) % C)[:, None]"
    return _function(
        f"{segment.name}(x_ptr, w_ptr, b_ptr, {parameters(segment)}y_ptr, rows, C, S, W, eps,"
        "\n    BLOCK_R: tl.constexpr, BLOCK_W: tl.constexpr)",
        "r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)",
        "k = tl.arange(0, BLOCK_W)",
        "mask = (r[:, None] < rows) & (k[None, :] < W)",
        *([channel] if segment.wants_channel() else []),
        "i = r[:, None].to(tl.int64) * W + k[None, :]",
        _LOAD.replace("@", "i"),
        *_raw((*segment.pre, *segment.post)),
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


def axis_kernel(segment: Segment) -> str:
    """A program a tile of pixels: a loop over channels, or over the depth of a volume."""
    core = segment.core
    assert core is not None
    depth = core.kind == "reduce_depth"
    count, step, rows = ("R", "r", "plane") if depth else ("C", "c", "n")
    start, each, end = _reduction(core.detail)
    head = [f"{rows} = tl.program_id(0)"]
    if depth and segment.wants_channel():
        head.append("c = plane % C")
    loop = [f"for {step} in range({count}):", f"    {_LOAD.replace('@', f'{step} * S + s')}"]
    pre = lines_of(segment.pre)
    softmax = core.kind == "softmax"
    if softmax:
        start, each, end = _reduction("logsumexp")
    body = [
        *head,
        "s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = s < S",
        f"x_ptr += {rows}.to(tl.int64) * {count} * S",
        *start,
        *loop,
        *_deeper(*_raw(segment.pre), *pre, *each),
    ]
    if softmax:
        body += [
            f"y_ptr += {rows}.to(tl.int64) * {count} * S",
            *loop,
            *_deeper(*_raw((*segment.pre, *segment.post)), *pre, "v = tl.exp(v - best) / total"),
            *_deeper(*lines_of(segment.post), "tl.store(y_ptr + c * S + s, v, mask=mask)"),
        ]
    else:
        body += [
            end.replace("COUNT", count),
            *lines_of(segment.post),
            f"tl.store(y_ptr + {rows}.to(tl.int64) * S + s, v, mask=mask)",
        ]
    sizes = "C, R, S" if depth else "C, S"
    return _function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, {sizes}, BLOCK: tl.constexpr)", *body
    )


def row_kernel(segment: Segment) -> str:
    """A program a row: a plane, or all values of a sample."""
    core = segment.core
    assert core is not None
    sample = core.kind == "reduce_sample"
    size, row = ("size", "n") if sample else ("S", "plane")
    own = [f"{row} = tl.program_id(0)"]
    inner: list[str] = []
    if sample:
        own.append("size = C * S")
        inner = ["c = s // S"] if segment.wants_channel(segment.pre) else []
    elif segment.wants_channel():
        own.append("c = plane % C")
    pre = lines_of(segment.pre, _MASKED if sample else "")
    return _function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, S, BLOCK: tl.constexpr)",
        *own,
        f"x_ptr += {row}.to(tl.int64) * {size}",
        "total = tl.zeros((BLOCK,), dtype=tl.float32)",
        f"for start in range(0, {size}, BLOCK):",
        *_deeper("s = start + tl.arange(0, BLOCK)", f"mask = s < {size}", *inner, _LOAD.replace("@", "s")),
        *_deeper(*_raw(segment.pre), *pre, "total += tl.where(mask, v, 0.0)" if pre else "total += v"),
        "v = tl.sum(total)" + (f" / {size}" if core.detail == "mean" else ""),
        *lines_of(segment.post),
        f"tl.store(y_ptr + {row}, v)",
    )


def pool_kernel(segment: Segment, rank: int) -> str:
    """A program a tile of pooled pixels of one plane: a loop over the window, operators applied on load."""
    core = segment.core
    assert core is not None
    plane = axes(rank, "O@", " * ")
    start, each, end = _reduction("max" if core.detail == "max" else "sum")
    corner = flat_index(rank, "i")
    steps = [f"i{one.lower()} = o{one.lower()} * K + {_window(rank, one)}" for one in LETTERS[rank]]
    return _function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, {axes(rank, '@')}, {axes(rank, 'O@')},"
        "\n    K: tl.constexpr, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        *(["c = plane % C"] if segment.wants_channel() else []),
        "p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        f"mask = p < {plane}",
        *split_lines(rank, "p", "o", "O"),
        f"x_ptr += plane.to(tl.int64) * {axes(rank, '@', ' * ')}",
        *start,
        f"for k in tl.static_range({' * '.join(['K'] * rank)}):",
        *_deeper(*steps, _LOAD.replace("@", corner), *_raw(segment.pre), *lines_of(segment.pre), *each),
        end if core.detail == "max" else f"v = total / ({' * '.join(['K'] * rank)})",
        *lines_of(segment.post),
        f"tl.store(y_ptr + plane.to(tl.int64) * {plane} + p, v, mask=mask)",
    )


def _window(rank: int, letter: str) -> str:
    behind = rank - 1 - LETTERS[rank].index(letter)
    text = "k" if not behind else "k // K" if behind == 1 else "k // (K * K)"
    return text if behind == rank - 1 else f"{text} % K"


def _reduction(detail: str) -> tuple[list[str], list[str], str]:
    """Start, step and end of a running reduction of `v`; COUNT stands for the number of values."""
    if detail in ("max", "min"):
        sign = "-" if detail == "max" else ""
        start = [f'best = tl.full((BLOCK,), {sign}float("inf"), dtype=tl.float32)']
        return start, [f"best = tl.{detail}imum(best, v)"], "v = best"
    zero = "total = tl.zeros((BLOCK,), dtype=tl.float32)"
    if detail == "logsumexp":
        return (
            ['best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)', zero],
            [
                "top = tl.maximum(best, v)",
                "total = total * tl.exp(best - top) + tl.exp(v - top)",
                "best = top",
            ],
            "v = best + tl.log(total)",
        )
    return [zero], ["total += v"], "v = total / COUNT" if detail == "mean" else "v = total"


def _statistics(size: str, ops: Sequence[Op], pre: Sequence[str], channel: Sequence[str] = ()) -> list[str]:
    """Lines for `mean` and `rstd` of a row of `size` values after the operators `ops`."""
    return [
        "total = tl.zeros((BLOCK,), dtype=tl.float32)",
        "square = tl.zeros((BLOCK,), dtype=tl.float32)",
        f"for start in range(0, {size}, BLOCK):",
        *_deeper("s = start + tl.arange(0, BLOCK)", f"mask = s < {size}", *channel, _LOAD.replace("@", "s")),
        *_deeper(*_raw(ops), *pre, *(["v = tl.where(mask, v, 0.0)"] if pre else [])),
        "    total += v",
        "    square += v * v",
        f"mean = tl.sum(total) / {size}",
        f"rstd = tl.rsqrt(tl.sum(square) / {size} - mean * mean + eps)",
    ]


def _raw(ops: Sequence[Op]) -> list[str]:
    return ["raw = v"] if any(op.kind == "residual" for op in ops) else []


def _deeper(*lines: str) -> list[str]:
    return [f"    {line}" for line in lines]


def _function(signature: str, *body: str) -> str:
    return f"@triton.jit\ndef {signature}:\n{indented(list(body))}"
