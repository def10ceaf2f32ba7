"""Pools in a chain: the layer with integers or tuples, its kernel, and the host's lines that read both."""

from __future__ import annotations

import random

from kernel_core.problems.modules.convolution.gemm_kernels import axes, flat_index, split_lines
from kernel_core.problems.modules.convolution.geometry import LETTERS
from kernel_core.problems.modules.convolution.tail_kernels import (
    LOAD,
    Launch,
    Segment,
    deeper,
    function,
    lines_of,
    parameters,
    reduction_lines,
)
from kernel_core.problems.modules.convolution.tail_ops import Op
from kernel_core.problems.modules.convolution.tail_values import pooled
from kernel_core.problems.modules.style import unused

PER_AXIS = {
    rank: f"""
def per_axis(value):
    return value if isinstance(value, tuple) else ({", ".join(["value"] * rank)})
"""
    for rank in (2, 3)
}
"""A function of the host: torch's layers keep what they were given, an integer or a tuple."""
_WINDOWS = {
    2: ((2, 2), (2, 2), (2, 2), (3, 3), (2, 3), (3, 2), (1, 2), (2, 1)),
    3: ((2, 2, 2), (2, 2, 2), (2, 2, 2), (1, 2, 2), (2, 1, 2), (2, 2, 1)),
}


def draw_pool(rng: random.Random, taken: set[str], rank: int) -> Op:
    """A pool with its extent alone, with a stride, or with stride and padding; integers or tuples."""
    detail = rng.choice(("max", "avg"))
    window = rng.choice(_WINDOWS[rank])
    attribute = unused((f"{detail}_pool", "pool", f"{detail}_pool2", f"{detail}pool"), rng, taken)
    count = rng.choices((1, 2, 3), (5, 4, 2))[0]
    stride = window
    if count > 1 and rng.random() < 0.3:
        stride = tuple(max(1, one - 1) for one in window)
    # Torch takes at most half of the window as padding.
    most = rng.choice((0, 1))
    padding = tuple(min(most, one // 2) for one in window)
    values = tuple(_written(one, rng) for one in (window, stride, padding)[:count])
    words = ("kernel_size", "stride", "padding")[:count]
    given: tuple[str, ...] = ()
    if rng.random() < 0.55:
        pattern = rng.choice((f"{attribute}_@", "pool_@", "@_pool", f"{detail}pool_@"))
        given = tuple(unused((pattern.replace("@", word),), rng, taken) for word in words)
    elif rng.random() < 0.2:
        given = (unused(("pool_size", "window", f"{detail}_window"), rng, taken),)
    keyword = rng.random() < 0.6
    texts = (*given, *values[len(given) :])
    pairs = zip(words, texts, strict=True)
    inside = ", ".join(f"{word}={text}" if keyword else text for word, text in pairs)
    return Op(
        f"{detail}_pool{rank}d",
        "pool",
        (f"x = self.{attribute}(x)",),
        pooled(detail),
        init_args=given,
        init_lines=(f"self.{attribute} = nn.{detail.capitalize()}Pool{rank}d({inside})",),
        settings=tuple(zip(given, values, strict=False)),
        detail=detail,
        attribute=attribute,
        padded=count == 3,
        window=window,
    )


def _written(values: tuple[int, ...], rng: random.Random) -> str:
    even = len(set(values)) == 1
    return str(values[0]) if even and rng.random() < 0.65 else str(values)


def pool_kernel(segment: Segment, rank: int) -> str:
    """A program a tile of pooled pixels of one plane: a loop over the window, operators applied on load."""
    core = segment.core
    assert core is not None
    plane = axes(rank, "O@", " * ")
    start, each, end = reduction_lines("max" if core.detail == "max" else "sum")
    padded = core.padded
    less = " - P@" if padded else ""
    steps = [
        f"i{one.lower()} = o{one.lower()} * S{one}{less.replace('@', one)} + {_window(rank, one)}"
        for one in LETTERS[rank]
    ]
    load = LOAD.replace("@", flat_index(rank, "i"))
    if padded:
        bounds = [f"(i{one.lower()} >= 0) & (i{one.lower()} < {one})" for one in LETTERS[rank]]
        steps.append(f"inside = mask & {' & '.join(bounds)}")
        load = load.replace("mask=mask", "mask=inside")
        outside = '-float("inf")' if core.detail == "max" else "0.0"
        each = [f"v = tl.where(inside, v, {outside})", *each]
    settings = "".join(f"\n    {axes(rank, f'{name}@: tl.constexpr')}," for name in ("K", "S", *"P" * padded))
    taps = axes(rank, "K@", " * ")
    return function(
        f"{segment.name}(x_ptr, {parameters(segment)}y_ptr, C, {axes(rank, '@')}, {axes(rank, 'O@')},"
        f"{settings} BLOCK: tl.constexpr)",
        "plane = tl.program_id(0)",
        *(["c = plane % C"] if segment.wants_channel() else []),
        "p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        f"mask = p < {plane}",
        *split_lines(rank, "p", "o", "O"),
        f"x_ptr += plane.to(tl.int64) * {axes(rank, '@', ' * ')}",
        *start,
        f"for k in tl.static_range({taps}):",
        *deeper(*steps, load, *lines_of(segment.pre), *each),
        end if core.detail == "max" else f"v = total / ({taps})",
        *lines_of(segment.post),
        f"tl.store(y_ptr + plane.to(tl.int64) * {plane} + p, v, mask=mask)",
    )


def _window(rank: int, letter: str) -> str:
    """The place in the window along one axis, from the running number `k`."""
    place = LETTERS[rank].index(letter)
    behind = [f"K{one}" for one in LETTERS[rank][place + 1 :]]
    text = "k" if not behind else f"k // {behind[0]}" if len(behind) == 1 else f"k // ({' * '.join(behind)})"
    return text if not place else f"{text} % K{letter}"


def pool_lines(part: Segment, rank: int, source: str, target: str, launch: Launch) -> list[str]:
    """The host's lines from `source`, with sizes named already, to `target`."""
    assert part.core is not None
    own = "".join(f"{text}, " for _, text in part.arguments)
    outputs = axes(rank, "O@")
    plane = axes(rank, "O@", " * ")
    pool = f"self.{part.core.attribute}"
    padded = part.core.padded
    extent = "(@ + 2 * P@ - K@) // S@ + 1" if padded else "(@ - K@) // S@ + 1"
    read = (("K", "kernel_size"), ("S", "stride"), *([("P", "padding")] if padded else []))
    given = ", ".join(f"{name}{one}={name}{one}" for name, _ in read for one in LETTERS[rank])
    return [
        *[f"{axes(rank, f'{name}@')} = per_axis({pool}.{attribute})" for name, attribute in read],
        *[f"O{one} = {extent.replace('@', one)}" for one in LETTERS[rank]],
        f"{target} = torch.empty((N, C, {outputs}), device={source}.device, dtype={source}.dtype)",
        f"{part.name}[(N * C, triton.cdiv({plane}, {launch.pixels}))](",
        f"    {source}, {own}{target}, C, {axes(rank, '@')}, {outputs},",
        f"    {given},",
        f"    BLOCK={launch.pixels}{launch.options},",
        ")",
    ]
