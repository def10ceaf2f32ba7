"""Triton functions for the segments of a chain: one core operator with elementwise operators around it.

A tensor is seen as (N, C, S): images, channels, pixels. `c` is the channel of the values in `v`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.convolution.gemm_kernels import indented
from kernel_core.problems.modules.convolution.tail_ops import Op

MASKED = ", mask=mask, other=0.0"
LOAD = f"v = tl.load(x_ptr + @{MASKED})"


@dataclass(frozen=True)
class Launch:
    """Sizes of blocks: a flat tile, a step along a row, a tile of pixels with a loop over channels."""

    flat: int = 1024
    row: int = 2048
    pixels: int = 256
    options: str = ""
    """Such as `, num_warps=8`."""


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
        return function(
            f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, count, BLOCK: tl.constexpr)",
            "i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "mask = i < count",
            LOAD.replace("@", "i"),
            *lines_of(ops),
            "tl.store(y_ptr + i, v, mask=mask)",
        )
    return function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, S, BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        "c = plane % C",
        "s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = s < S",
        "i = plane.to(tl.int64) * S + s",
        LOAD.replace("@", "i"),
        *lines_of(ops),
        "tl.store(y_ptr + i, v, mask=mask)",
    )


def axis_kernel(segment: Segment) -> str:
    """A program a tile of pixels: a loop over channels, or over the depth of a volume."""
    core = segment.core
    assert core is not None
    depth = core.kind == "reduce_depth"
    count, step, rows = ("R", "r", "plane") if depth else ("C", "c", "n")
    start, each, end = reduction_lines(core.detail)
    head = [f"{rows} = tl.program_id(0)"]
    if depth and segment.wants_channel():
        head.append("c = plane % C")
    loop = [f"for {step} in range({count}):", f"    {LOAD.replace('@', f'{step} * S + s')}"]
    pre = lines_of(segment.pre)
    softmax = core.kind == "softmax"
    if softmax:
        start, each, end = reduction_lines("logsumexp")
    body = [
        *head,
        "s = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "mask = s < S",
        f"x_ptr += {rows}.to(tl.int64) * {count} * S",
        *start,
        *loop,
        *deeper(*pre, *each),
    ]
    if softmax:
        body += [
            f"y_ptr += {rows}.to(tl.int64) * {count} * S",
            *loop,
            *deeper(*pre, "v = tl.exp(v - best) / total"),
            *deeper(*lines_of(segment.post), "tl.store(y_ptr + c * S + s, v, mask=mask)"),
        ]
    else:
        body += [
            end.replace("COUNT", count),
            *lines_of(segment.post),
            f"tl.store(y_ptr + {rows}.to(tl.int64) * S + s, v, mask=mask)",
        ]
    sizes = "C, R, S" if depth else "C, S"
    return function(f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, {sizes}, BLOCK: tl.constexpr)", *body)


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
    pre = lines_of(segment.pre, MASKED if sample else "")
    if core.detail in ("amax", "amin"):
        short = core.detail.removeprefix("a")
        start, _, _ = reduction_lines(short)
        outside = '-float("inf")' if short == "max" else 'float("inf")'
        each = [f"best = tl.{short}imum(best, tl.where(mask, v, {outside}))"]
        end = f"v = tl.{short}(best)"
    else:
        start, _, _ = reduction_lines("sum")
        each = ["total += tl.where(mask, v, 0.0)" if pre else "total += v"]
        end = "v = tl.sum(total)" + (f" / {size}" if core.detail == "mean" else "")
    return function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, S, BLOCK: tl.constexpr)",
        *own,
        f"x_ptr += {row}.to(tl.int64) * {size}",
        *start,
        f"for start in range(0, {size}, BLOCK):",
        *deeper("s = start + tl.arange(0, BLOCK)", f"mask = s < {size}", *inner, LOAD.replace("@", "s")),
        *deeper(*pre, *each),
        end,
        *lines_of(segment.post),
        f"tl.store(y_ptr + {row}, v)",
    )


def reduction_lines(detail: str) -> tuple[list[str], list[str], str]:
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


def deeper(*lines: str) -> list[str]:
    """Lines one level further in."""
    return [f"    {line}" for line in lines]


def function(signature: str, *body: str) -> str:
    """A Triton function of the lines."""
    return f"@triton.jit\ndef {signature}:\n{indented(list(body))}"
