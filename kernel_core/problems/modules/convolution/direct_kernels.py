"""Direct convolution: a program computes a tile of pixels of one output plane, weights are scalars."""

from __future__ import annotations

from kernel_core.problems.modules.convolution.gemm_kernels import (
    Skeleton,
    axes,
    constexprs,
    flat_index,
    indented,
    split_lines,
    taps,
)
from kernel_core.problems.modules.convolution.geometry import LETTERS
from kernel_core.problems.modules.convolution.host import output_line, settings, shape_lines


def depthwise_kernel(skeleton: Skeleton) -> str:
    """One input channel for each output channel: a loop over taps."""
    rank = skeleton.rank
    plane = axes(rank, "O@", " * ")
    note = "  # image and channel: n * C + c" if skeleton.comments else ""
    return f"""
@triton.jit
def {skeleton.kernel}(
    x_ptr, w_ptr, b_ptr, y_ptr, C, {axes(rank, "@")}, {axes(rank, "O@")},
    {constexprs(rank)},
    BLOCK: tl.constexpr,
):
    nc = tl.program_id(0){note}
    c = nc % C
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
{indented(split_lines(rank, "p", "o", "O"))}
    x_ptr += nc.to(tl.int64) * {axes(rank, "@", " * ")}
    w_ptr += c * {taps(rank)}
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range({taps(rank)}):
{indented(_gather(rank, skeleton.transposed), 2)}
    if b_ptr is not None:
        acc += tl.load(b_ptr + c)
    y_ptr += nc.to(tl.int64) * {plane}
    tl.store(y_ptr + p, acc, mask=p < {plane})
""".strip("\n")


def depthwise_lines(skeleton: Skeleton, attribute: str, block: int, launch: str = "") -> list[str]:
    """The body of `forward` for the depthwise kernel."""
    rank = skeleton.rank
    return [
        *shape_lines(rank, skeleton.transposed, attribute),
        output_line(rank),
        f"grid = (N * C, triton.cdiv({axes(rank, 'O@', ' * ')}, {block}))",
        f"{skeleton.kernel}[grid](",
        f"    x, conv.weight, conv.bias, y, C, {axes(rank, '@')}, {axes(rank, 'O@')},",
        f"    {settings(rank)}, BLOCK={block}{launch},",
        ")",
        "return y",
    ]


def direct_kernel(skeleton: Skeleton) -> str:
    """All input channels of the group: a loop over channels and a loop over taps, without tl.dot."""
    rank = skeleton.rank
    plane = axes(rank, "O@", " * ")
    image = axes(rank, "@", " * ")
    row = "(o // CO * CI + c) * CO + o % CO" if skeleton.transposed else "o * CI + c"
    note = "  # image and output channel" if skeleton.comments else ""
    return f"""
@triton.jit
def {skeleton.kernel}(
    x_ptr, w_ptr, b_ptr, y_ptr, G, CI, CO, {axes(rank, "@")}, {axes(rank, "O@")},
    {constexprs(rank)},
    BLOCK: tl.constexpr,
):
    no = tl.program_id(0){note}
    o = no % (G * CO)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
{indented(split_lines(rank, "p", "o", "O"))}
    x_ptr += (no // CO).to(tl.int64) * CI * {image}
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(CI):
        w_row = w_ptr + ({row}) * {taps(rank)}
        for tap in range({taps(rank)}):
{indented(_gather(rank, skeleton.transposed, "w_row"), 3)}
        x_ptr += {image}
    if b_ptr is not None:
        acc += tl.load(b_ptr + o)
    y_ptr += no.to(tl.int64) * {plane}
    tl.store(y_ptr + p, acc, mask=p < {plane})
""".strip("\n")


def direct_lines(skeleton: Skeleton, attribute: str, block: int) -> list[str]:
    """The body of `forward` for the direct kernel."""
    rank = skeleton.rank
    return [
        *shape_lines(rank, skeleton.transposed, attribute),
        "G = conv.groups",
        "CI, CO = C // G, conv.out_channels // G",
        output_line(rank),
        f"grid = (N * conv.out_channels, triton.cdiv({axes(rank, 'O@', ' * ')}, {block}))",
        f"{skeleton.kernel}[grid](",
        f"    x, conv.weight, conv.bias, y, G, CI, CO, {axes(rank, '@')}, {axes(rank, 'O@')},",
        f"    {settings(rank)}, BLOCK={block},",
        ")",
        "return y",
    ]


def _gather(rank: int, transposed: bool, weight: str = "w_ptr") -> list[str]:
    lines = split_lines(rank, "tap", "k", "K")
    checks = []
    for one in LETTERS[rank]:
        low = one.lower()
        if transposed:
            lines.append(f"u{low} = o{low} + P{one} - k{low} * D{one}")
            lines.append(f"i{low} = u{low} // S{one}")
            checks.append(f"(u{low} >= 0) & (u{low} % S{one} == 0) & (i{low} < {one})")
        else:
            lines.append(f"i{low} = o{low} * S{one} - P{one} + k{low} * D{one}")
            checks.append(f"(i{low} >= 0) & (i{low} < {one})")
    return [
        *lines,
        f"inside = {' & '.join(checks)}",
        f"x = tl.load(x_ptr + {flat_index(rank, 'i')}, mask=inside, other=0.0)",
        f"acc += x * tl.load({weight} + tap)",
    ]
