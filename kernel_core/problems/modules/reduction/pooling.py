"""Pooling in one to three dimensions: windows with stride, padding and dilation, bins, whole planes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.program import Size

_AXES = {1: ("W",), 2: ("H", "W"), 3: ("D", "H", "W")}
_LENGTHS: dict[int, tuple[int, ...]] = {
    1: (1000, 4096, 5000, 8192, 10000, 16384, 30000, 32768),
    2: (56, 64, 100, 112, 128, 200, 224, 256, 300),
    3: (16, 20, 24, 32, 40, 48, 64),
}
_DECODE = {
    1: ("ow = offs",),
    2: ("oh = offs // OW", "ow = offs % OW"),
    3: ("od = offs // (OH * OW)", "oh = (offs // OW) % OH", "ow = offs % OW"),
}
_PLACE = {1: "iw", 2: "ih * W + iw", 3: "(id * H + ih) * W + iw"}
_AXIS_NAMES: dict[int, tuple[tuple[str, ...], ...]] = {
    1: (("length",), ("sequence_length",), ("input_length",)),
    2: (("height", "width"), ("dim1", "dim2")),
    3: (("depth", "height", "width"), ("dim1", "dim2", "dim3")),
}
_WINDOWS = (
    # kernel size, stride (0: as the kernel size), padding, dilation
    (2, 2, 0, 1), (2, 0, 0, 1), (3, 2, 1, 1), (3, 1, 1, 1), (3, 0, 0, 1), (4, 2, 1, 1), (4, 0, 0, 1),
    (5, 2, 2, 1), (5, 1, 2, 1), (3, 2, 0, 1), (3, 1, 1, 2), (3, 2, 1, 2), (4, 1, 2, 2), (2, 1, 1, 3),
)  # fmt: skip
_LONG_WINDOWS = (
    *_WINDOWS,
    (6, 3, 2, 1),
    (7, 1, 3, 1),
    (7, 2, 3, 2),
    (8, 2, 3, 1),
    (9, 3, 4, 1),
    (10, 0, 0, 1),
)


@dataclass(frozen=True)
class _Pool:
    """A drawn window pooling."""

    rank: int
    largest: bool
    size: int
    stride: int
    """Zero where the problem leaves it to the kernel size."""
    padding: int
    dilation: int
    count_padding: bool

    @property
    def layer(self) -> str:
        """Torch's class."""
        return f"nn.{'Max' if self.largest else 'Avg'}Pool{self.rank}d"

    @property
    def name(self) -> str:
        """Torch's name of the operator."""
        return f"{'max' if self.largest else 'avg'}_pool{self.rank}d"


def window_pool(rng: random.Random) -> Draft:
    """Max or average pooling over windows."""
    rank = rng.choice((1, 2, 2, 3))
    largest = rng.random() < 0.5
    choices = _LONG_WINDOWS if rank < 3 else _WINDOWS
    size, stride, padding, dilation = rng.choice([one for one in choices if largest or one[3] == 1])
    pool = _Pool(rank, largest, size, stride, padding, dilation, rng.random() < 0.75)
    attribute = rng.choice(("pool", "maxpool" if largest else "avg_pool"))
    module = _module(rng, pool, attribute)
    plain, fixed = _kernel(pool, constant=False), _kernel(pool, constant=True)
    naive = _answer("naive", pool, plain, attribute, 256, 4)
    fused = _answer("fused", pool, fixed, attribute, 512, 4)
    tuned = _answer("tuned", pool, fixed, attribute, 1024, 8)
    if largest:
        wrong = mistake(fused, "tl.maximum(acc, x)", "x", "last_value_only")
    else:
        wrong = mistake(fused, "acc / ", "acc / 2 / ", "wrong_divisor")
    return draft(rng, "window_pool", (pool.name,), module, (naive, fused, tuned, wrong))


_KERNEL = """
@triton.jit
def @K@_kernel(
    x_ptr, out_ptr, @IN@, @OUT@, @WINDOW@,
    K: tl.constexpr, BLOCK: tl.constexpr,
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


def _kernel(pool: _Pool, constant: bool) -> str:
    axes = _AXES[pool.rank]
    outs = [f"O{axis}" for axis in axes]
    typed = ": tl.constexpr" if constant else ""
    window = [f"stride{typed}", f"padding{typed}", *([f"dilation{typed}"] if pool.largest else [])]
    count = not pool.largest and not pool.count_padding
    divisor = "count" if count else {1: "K", 2: "(K * K)", 3: "(K * K * K)"}[pool.rank]
    start = 'float("-inf")' if pool.largest else "0.0"
    return fill(
        _KERNEL,
        K=pool.name,
        IN=", ".join(axes),
        OUT=", ".join(outs),
        WINDOW=", ".join(window),
        SIZE=" * ".join(outs),
        PLANE=" * ".join(axes),
        DECODE="\n".join(_DECODE[pool.rank]),
        START=start,
        RESULT="acc" if pool.largest else f"acc / {divisor}",
        LOOPS="\n".join(_loops(pool, axes, start, count)),
        COUNT="count = tl.zeros((BLOCK,), dtype=tl.float32)" if count else "",
    )


def _loops(pool: _Pool, axes: tuple[str, ...], other: str, count: bool) -> list[str]:
    lines: list[str] = []
    for depth, axis in enumerate(axes):
        one = axis.lower()
        step = f" + k{one} * dilation" if pool.largest else f" + k{one}"
        lines.append(f"{'    ' * depth}for k{one} in range(K):")
        lines.append(f"{'    ' * (depth + 1)}i{one} = o{one} * stride - padding{step}")
        previous = "mask" if not depth else f"in_{axes[depth - 1].lower()}"
        lines.append(f"{'    ' * (depth + 1)}in_{one} = {previous} & (i{one} >= 0) & (i{one} < {axis})")
    inner = "    " * len(axes)
    inside = f"in_{axes[-1].lower()}"
    lines.append(f"{inner}x = tl.load(x_ptr + {_PLACE[pool.rank]}, mask={inside}, other={other})")
    lines.append(f"{inner}{'acc = tl.maximum(acc, x)' if pool.largest else 'acc += x'}")
    if count:
        lines.append(f"{inner}count += {inside}.to(tl.float32)")
    return lines


def _answer(grade: Grade, pool: _Pool, function: str, attribute: str, block: int, warps: int) -> Answer:
    axes = _AXES[pool.rank]
    item = "[0]" if pool.rank == 1 and not pool.largest else ""
    reads = [
        f"k = self.{attribute}.kernel_size{item}",
        f"s = self.{attribute}.stride{item}",
        f"p = self.{attribute}.padding{item}",
    ]
    if pool.largest:
        reads.append(f"d = self.{attribute}.dilation")
    span = "2 * p - d * (k - 1) - 1" if pool.largest else "2 * p - k"
    outs = [f"O{axis}" for axis in axes]
    given = ", ".join((*axes, *outs))
    warp = "" if warps == 4 else f", num_warps={warps}"
    window = "s, p, d" if pool.largest else "s, p"
    lines = (
        "x = x.contiguous()",
        f"N, C, {', '.join(axes)} = x.shape",
        *reads,
        *(f"O{axis} = ({axis} + {span}) // s + 1" for axis in axes),
        f"out = torch.empty((N, C, {', '.join(outs)}), device=x.device, dtype=x.dtype)",
        f"grid = (N * C * triton.cdiv({' * '.join(outs)}, {block}),)",
        f"{pool.name}_kernel[grid](",
        f"    x, out, {given}, {window}, K=k, BLOCK={block}{warp}",
        ")",
        "return out",
    )
    return Answer(grade, (function,), lines, _reason(constant=grade != "naive"))


def _reason(constant: bool) -> str:
    text = (
        "A program takes neighbouring outputs of one channel, so that windows that overlap are served by the "
        "cache; positions outside the input are masked, so padding is never stored."
    )
    if constant:
        text += " Stride and padding are compile-time constants, which folds the index arithmetic."
    return text


def _module(rng: random.Random, pool: _Pool, attribute: str) -> Module:
    arguments = ["kernel_size: int"]
    names = ["kernel_size"]
    sizes = [Size("kernel_size", pool.size, pool.size)]
    text = ["kernel_size=kernel_size"]
    given = (
        ("stride", pool.stride, "None"),
        ("padding", pool.padding, "0"),
        ("dilation", pool.dilation, "1"),
    )
    for name, value, default in given:
        if name == "dilation" and not pool.largest:
            continue
        if str(value) == default or (name == "stride" and not value):
            if rng.random() < 0.5 or name == "stride":
                arguments.append(f"{name}: int = {default}")
                text.append(f"{name}={name}")
            continue
        arguments.append(f"{name}: int")
        names.append(name)
        sizes.append(Size(name, value, value))
        text.append(f"{name}={name}")
    # Arguments without a default stand before those with one.
    arguments.sort(key=lambda argument: "=" in argument)
    if not pool.largest and not pool.count_padding:
        text.append("count_include_pad=False")
    reach = pool.dilation * (pool.size - 1) + 1
    tensor = pool_sizes(rng, pool.rank, reach + 2)
    source = rng.choice(("rand", "randn"))
    word = "Max" if pool.largest else "Average"
    return Module(
        doc=f"{word} pooling over {pool.rank}D windows.",
        init_args=tuple(arguments),
        init_lines=(f"self.{attribute} = {pool.layer}({', '.join(text)})",),
        forward_args=("x",),
        forward_lines=(f"return self.{attribute}(x)",),
        sizes=(*tensor, *sizes),
        inputs=(f"torch.{source}({', '.join(size.name for size in tensor)})",),
        init_inputs=tuple(names),
    )


def pool_sizes(rng: random.Random, rank: int, cpu: int) -> tuple[Size, ...]:
    names = rng.choice(_AXIS_NAMES[rank])
    while True:
        batch, channels = rng.choice((8, 12, 16, 24, 32, 64)), rng.choice((3, 16, 24, 32, 48, 64, 96, 128))
        lengths = [rng.choice(_LENGTHS[rank]) for _ in names]
        if 12_000_000 <= batch * channels * math.prod(lengths) <= 96_000_000:
            break
    first = (
        Size("batch_size", batch, 2),
        Size(rng.choice(("channels", "features", "in_channels")), channels, 3),
    )
    return (
        *first,
        *(Size(name, one, cpu + place) for place, (name, one) in enumerate(zip(names, lengths, strict=True))),
    )
