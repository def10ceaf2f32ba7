"""Pooling in one to three dimensions: windows with stride, padding and dilation, bins, whole planes."""

from __future__ import annotations

import random

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.pool_draw import Pool, draw_pool, pool_module

_DECODE = {
    1: ("ow = offs",),
    2: ("oh = offs // OW", "ow = offs % OW"),
    3: ("od = offs // (OH * OW)", "oh = (offs // OW) % OH", "ow = offs % OW"),
}
_PLACE = {1: "iw", 2: "ih * W + iw", 3: "(id * H + ih) * W + iw"}


def window_pool(rng: random.Random) -> Draft:
    """Max or average pooling over windows."""
    pool = draw_pool(rng)
    largest = pool.largest
    attribute = rng.choice(("pool", "maxpool" if largest else "avg_pool"))
    module = pool_module(rng, pool, attribute)
    plain, fixed = _kernel(pool, constant=False), _kernel(pool, constant=True)
    naive = _answer("naive", pool, plain, attribute, 256, 4)
    fused = _answer("fused", pool, fixed, attribute, 512, 4)
    tuned = _answer("tuned", pool, fixed, attribute, 1024, 8)
    if largest:
        wrong = mistake(fused, "tl.maximum(acc, x)", "x", "last_value_only")
    else:
        wrong = mistake(fused, "acc / ", "acc / 2 / ", "wrong_divisor")
    return draft(rng, "window_pool", (pool.name,), module, (naive, fused, tuned, wrong))


_SETTINGS = ("K", "stride", "padding")
_KERNEL = """
@triton.jit
def @K@_kernel(
    x_ptr, out_ptr, @IN@, @OUT@, @WINDOW@,
    @TAPS@, BLOCK: tl.constexpr,
):
    # one program: BLOCK outputs of one channel of one sample
    size = @SIZE@
    blocks = tl.cdiv(size, BLOCK)
    plane = (tl.program_id(0) // blocks).to(tl.int64)
    offs = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < size
    @DECODE@
    x_ptr += plane * @PLANE@
    acc = tl.full((BLOCK,), @START@, dtype=tl.float32)
    @COUNT@
    @LOOPS@
    tl.store(out_ptr + plane * size + offs, @RESULT@, mask=mask)
"""


def _kernel(pool: Pool, constant: bool) -> str:
    axes = pool.axes
    outs = [f"O{axis}" for axis in axes]
    typed = ": tl.constexpr" if constant else ""
    names = [*pool.each("stride"), *pool.each("padding"), *(["dilation"] if pool.dilated else [])]
    window = [f"{name}{typed}" for name in names]
    count = not pool.largest and not pool.count_padding
    taps = pool.each("K") if pool.uneven else ["K"] * pool.rank
    divisor = "count" if count else taps[0] if len(taps) == 1 else f"({' * '.join(taps)})"
    start = 'float("-inf")' if pool.largest else "0.0"
    return fill(
        _KERNEL,
        K=pool.name,
        IN=", ".join(axes),
        OUT=", ".join(outs),
        WINDOW=", ".join(window),
        TAPS=", ".join(f"{name}: tl.constexpr" for name in pool.each("K")),
        SIZE=" * ".join(outs),
        PLANE=" * ".join(axes),
        DECODE="\n".join(_DECODE[pool.rank]),
        START=start,
        RESULT="acc" if pool.largest else f"acc / {divisor}",
        LOOPS="\n".join(_loops(pool, axes, start, count)),
        COUNT="count = tl.zeros((BLOCK,), dtype=tl.float32)" if count else "",
    )


def _loops(pool: Pool, axes: tuple[str, ...], other: str, count: bool) -> list[str]:
    lines: list[str] = []
    for depth, axis in enumerate(axes):
        one = axis.lower()
        step = f" + k{one} * dilation" if pool.dilated else f" + k{one}"
        extent, stride, padding = (pool.each(name)[depth % len(pool.each(name))] for name in _SETTINGS)
        lines.append(f"{'    ' * depth}for k{one} in range({extent}):")
        lines.append(f"{'    ' * (depth + 1)}i{one} = o{one} * {stride} - {padding}{step}")
        previous = "mask" if not depth else f"in_{axes[depth - 1].lower()}"
        lines.append(f"{'    ' * (depth + 1)}in_{one} = {previous} & (i{one} >= 0) & (i{one} < {axis})")
    inner = "    " * len(axes)
    inside = f"in_{axes[-1].lower()}"
    lines.append(f"{inner}x = tl.load(x_ptr + {_PLACE[pool.rank]}, mask={inside}, other={other})")
    lines.append(f"{inner}{'acc = tl.maximum(acc, x)' if pool.largest else 'acc += x'}")
    if count:
        lines.append(f"{inner}count += {inside}.to(tl.float32)")
    return lines


def _answer(grade: Grade, pool: Pool, function: str, attribute: str, block: int, warps: int) -> Answer:
    axes = pool.axes
    reads, extents, window, taps = _host(pool, attribute)
    outs = [f"O{axis}" for axis in axes]
    given = ", ".join((*axes, *outs))
    warp = "" if warps == 4 else f", num_warps={warps}"
    lines = (
        "x = x.contiguous()",
        f"N, C, {', '.join(axes)} = x.shape",
        *reads,
        *extents,
        f"out = torch.empty((N, C, {', '.join(outs)}), device=x.device, dtype=x.dtype)",
        f"grid = (N * C * triton.cdiv({' * '.join(outs)}, {block}),)",
        f"{pool.name}_kernel[grid](",
        f"    x, out, {given}, {window}, {taps}, BLOCK={block}{warp}",
        ")",
        "return out",
    )
    return Answer(grade, (function,), lines, _reason(constant=grade != "naive"))


def _host(pool: Pool, attribute: str) -> tuple[list[str], list[str], str, str]:
    """The host's lines that read the layer, those for the output's extents, and the launch's settings."""
    axes = pool.axes
    if pool.uneven:
        reads = [
            f"{', '.join(f'{short}{axis.lower()}' for axis in axes)} = self.{attribute}.{name}"
            for short, name in (("k", "kernel_size"), ("s", "stride"), ("p", "padding"))
        ]
        extents = [
            f"O{axis} = ({axis} + 2 * p{one} - k{one}) // s{one} + 1" for axis in axes for one in axis.lower()
        ]
        window = ", ".join(f"{short}{axis.lower()}" for short in "sp" for axis in axes)
        return reads, extents, window, ", ".join(f"K{axis}=k{axis.lower()}" for axis in axes)
    item = "[0]" if pool.rank == 1 and not pool.largest else ""
    reads = [
        f"{short} = self.{attribute}.{name}{item}"
        for short, name in (("k", "kernel_size"), ("s", "stride"), ("p", "padding"))
    ]
    if pool.largest:
        reads.append(f"d = self.{attribute}.dilation")
    span = "2 * p - d * (k - 1) - 1" if pool.largest else "2 * p - k"
    extents = [f"O{axis} = ({axis} + {span}) // s + 1" for axis in axes]
    return reads, extents, "s, p, d" if pool.largest else "s, p", "K=k"


def _reason(constant: bool) -> str:
    text = (
        "A program takes neighbouring outputs of one channel, so that windows that overlap are served by the "
        "cache; positions outside the input are masked, so padding is never stored."
    )
    if constant:
        text += " Stride and padding are compile-time constants, which folds the index arithmetic."
    return text
