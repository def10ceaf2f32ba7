"""Convolution as a matrix product: output channels × output pixels, summed over taps and input channels.

A tap is a position of the kernel. The text is one pattern for one and two spatial axes, and for the
transposed convolution. There, programs share outputs of one remainder modulo the stride.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_core.problems.modules.convolution.geometry import LETTERS

BLOCKS = "BLOCK_O: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr"


@dataclass(frozen=True)
class Skeleton:
    """Choices of a kernel's text that leave its results alone."""

    rank: int
    transposed: bool
    kernel: str
    """Name of the Triton function."""
    comments: bool = True
    exact: bool = False
    """Products in full float32 in place of TF32."""
    autotune: bool = False
    blocks: tuple[int, int, int] = (64, 128, 32)
    """Largest number of output channels, pixels, and input channels of a tile."""
    launch: str = ""
    """Options of the launch, such as `, num_warps=8`."""


def axes(rank: int, pattern: str, separator: str = ", ") -> str:
    """The pattern once for each spatial axis, `@` replaced by its letter."""
    return separator.join(pattern.replace("@", letter) for letter in LETTERS[rank])


def flat_index(rank: int, prefix: str, extent: str = "") -> str:
    """Row-major offset of the pixel `{prefix}h`, … in an image of extents `{extent}H`, …"""
    letters = LETTERS[rank]
    text = f"{prefix}{letters[0].lower()}"
    for position, letter in enumerate(letters[1:]):
        text = f"({text})" if position else text
        text = f"{text} * {extent}{letter} + {prefix}{letter.lower()}"
    return text


def taps(rank: int) -> str:
    """The number of positions of the kernel."""
    return axes(rank, "K@", " * ")


def split_lines(rank: int, source: str, target: str, extent: str, ends: str = "") -> list[str]:
    """Lines that split a flat index into coordinates; `ends` is appended to each, `@` the letter."""
    letters = LETTERS[rank]
    lines = []
    for position, letter in enumerate(letters):
        behind = letters[position + 1 :]
        text = source
        if behind:
            size = " * ".join(f"{extent}{one}" for one in behind)
            text = f"{source} // {size}" if len(behind) == 1 else f"{source} // ({size})"
        if position:
            text = f"{text} % {extent}{letter}"
        lines.append(f"{target}{letter.lower()} = {text}{ends.replace('@', letter)}")
    return lines


def constexprs(rank: int, names: str = "KSPD") -> str:
    """Parameters for kernel size, stride, padding and dilation."""
    rows = [axes(rank, f"{name}@: tl.constexpr") for name in names]
    return ",\n    ".join(rows)


def indented(lines: list[str], depth: int = 1) -> str:
    """Lines of a block, joined."""
    return "\n".join("    " * depth + line if line else "" for line in lines)


def gemm_kernel(skeleton: Skeleton) -> str:
    """The Triton function for a forward or transposed convolution with groups."""
    rank = skeleton.rank
    plane = axes(rank, "O@", " * ")
    image = axes(rank, "@", " * ")
    note = "  # image and group: n * G + g" if skeleton.comments else ""
    precision = ', input_precision="ieee"' if skeleton.exact else ""
    pixels = _transposed_pixels(rank, skeleton.comments) if skeleton.transposed else _pixels(rank)
    inside = axes(rank, "(i@ >= 0) & (i@ < @)", " & ")
    for letter in LETTERS[rank]:
        inside = inside.replace(f"i{letter}", f"i{letter.lower()}")
    weight = "c[None, :] * CO + o[:, None]" if skeleton.transposed else "o[:, None] * CI + c[None, :]"
    load = [
        f"inside = {inside}",
        f"w = tl.load(w_ptr + ({weight}) * ({taps(rank)}) + tap,",
        "            mask=(o[:, None] < CO) & (c[None, :] < CI), other=0.0)",
        f"x = tl.load(x_ptr + c[:, None] * ({image}) + ({flat_index(rank, 'i')})[None, :],",
        "            mask=(c[:, None] < CI) & inside[None, :], other=0.0)",
        f"acc += tl.dot(w, x{precision})",
    ]
    body = _transposed_taps(rank, load) if skeleton.transposed else _forward_taps(rank) + load
    if skeleton.transposed:
        stored = axes(rank, "(o@ < O@)", " & ")
        for letter in LETTERS[rank]:
            stored = stored.replace(f"(o{letter}", f"(o{letter.lower()}")
        target, kept = f"({flat_index(rank, 'o', 'O')})[None, :]", f"({stored})[None, :]"
    else:
        target, kept = "p[None, :]", f"(p[None, :] < {plane})"
    text = f"""
@triton.jit
def {skeleton.kernel}(
    x_ptr, w_ptr, b_ptr, y_ptr, G, CI, CO, {axes(rank, "@")}, {axes(rank, "O@")},
    {constexprs(rank)},
    {BLOCKS},
):
    ng = tl.program_id(2){note}
    g = ng % G
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
{indented(pixels)}
    x_ptr += ng.to(tl.int64) * CI * {image}
    w_ptr += g * CO * CI * {taps(rank)}
    acc = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for step in range({taps(rank)} * tl.cdiv(CI, BLOCK_C)):
        tap = step % ({taps(rank)})
        c = step // ({taps(rank)}) * BLOCK_C + tl.arange(0, BLOCK_C)
{indented(body, 2)}
    if b_ptr is not None:
        acc += tl.load(b_ptr + g * CO + o, mask=o < CO, other=0.0)[:, None]
    y_ptr += ng.to(tl.int64) * CO * {plane}
    tl.store(y_ptr + o[:, None] * ({plane}) + {target}, acc, mask=(o[:, None] < CO) & {kept})
"""
    return (_AUTOTUNE if skeleton.autotune else "") + text.strip("\n")


_AUTOTUNE = """@triton.autotune(
    configs=[
        triton.Config({"BLOCK_O": 64, "BLOCK_P": 128, "BLOCK_C": 32}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_O": 128, "BLOCK_P": 128, "BLOCK_C": 32}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_O": 32, "BLOCK_P": 128, "BLOCK_C": 16}, num_warps=4, num_stages=3),
    ],
    key=["CI", "CO"],
)
"""


def _pixels(rank: int) -> list[str]:
    return [
        "p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)",
        *split_lines(rank, "p", "o", "O"),
    ]


def _transposed_pixels(rank: int, comments: bool) -> list[str]:
    strides = axes(rank, "S@", " * ")
    letters = LETTERS[rank]
    remainders = split_lines(rank, "phase", "r", "S")
    lines = ["# The outputs of a program share a remainder modulo the stride."] if comments else []
    lines += [
        f"phase = tl.program_id(0) % ({strides})",
        *remainders,
        f"p = tl.program_id(0) // ({strides}) * BLOCK_P + tl.arange(0, BLOCK_P)",
        *[f"Q{one} = tl.cdiv(O{one}, S{one})" for one in letters[1:]],
    ]
    for position, one in enumerate(letters):
        behind = letters[position + 1 :]
        size = " * ".join(f"Q{other}" for other in behind)
        quotient = "p" if not behind else f"p // {size}" if len(behind) == 1 else f"p // ({size})"
        quotient += f" % Q{one}" if position else ""
        lines.append(f"o{one.lower()} = {quotient} * S{one} + r{one.lower()}")
    return lines


def _forward_taps(rank: int) -> list[str]:
    lines = split_lines(rank, "tap", "k", "K")
    return [*lines, *[_at(one, "i@ = o@ * S$ - P$ + k@ * D$") for one in LETTERS[rank]]]


def _transposed_taps(rank: int, load: list[str]) -> list[str]:
    lines = split_lines(rank, "tap", "k", "K")
    hits = " and ".join(_at(one, "(r@ + P$ - k@ * D$) % S$ == 0") for one in LETTERS[rank])
    inner = [_at(one, "i@ = (o@ + P$ - k@ * D$) // S$") for one in LETTERS[rank]]
    return [*lines, f"if {hits}:", *[f"    {line}" for line in (*inner, *load)]]


def _at(letter: str, pattern: str) -> str:
    return pattern.replace("@", letter.lower()).replace("$", letter)
