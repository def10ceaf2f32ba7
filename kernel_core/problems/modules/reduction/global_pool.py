"""Pooling of whole planes and of bins: the mean or the maximum of each channel, adaptive output sizes."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.pool_draw import pool_sizes
from kernel_core.problems.modules.reduction.skeletons import ROW, row_launch
from kernel_core.problems.program import Size

_BINS = """
@triton.jit
def adaptive_pool_kernel(x_ptr, out_ptr, H, W, OH, OW, BLOCK: tl.constexpr):
    # one program: one bin of one channel, a row of the bin after the other
    pid = tl.program_id(0)
    plane = (pid // (OH * OW)).to(tl.int64)
    oh = (pid // OW) % OH
    ow = pid % OW
    h0 = (oh * H) // OH
    h1 = ((oh + 1) * H + OH - 1) // OH
    w0 = (ow * W) // OW
    w1 = ((ow + 1) * W + OW - 1) // OW
    offs = tl.arange(0, BLOCK)
    acc = tl.full((BLOCK,), @START@, dtype=tl.float32)
    for h in range(h0, h1):
        for start in range(w0, w1, BLOCK):
            w = start + offs
            x = tl.load(x_ptr + (plane * H + h) * W + w, mask=w < w1, other=@START@)
            acc = @ADD@
    tl.store(out_ptr + pid, @RESULT@)
"""


def global_pool(rng: random.Random) -> Draft:
    """The mean or the maximum of each channel."""
    rank = rng.choice((1, 2, 2, 3))
    largest = rng.random() < 0.35
    keep = rng.random() < 0.5
    name = "global_max" if largest else "global_mean"
    function = fill(
        ROW, K=name, MORE="", SCALARS="", SHIFT="", OTHER='float("-inf")' if largest else "0.0",
        INIT='acc = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)' if largest
        else "acc = tl.zeros((BLOCK,), dtype=tl.float32)",
        UPDATE="acc = tl.maximum(acc, x)" if largest else "acc += x",
        FINISH=f"tl.store(out_ptr + row, {'tl.max(acc, axis=0)' if largest else 'tl.sum(acc, axis=0) / n'})",
    )  # fmt: skip
    ones = ", 1" * rank if keep else ""
    host = (
        "x = x.contiguous()",
        "n = x.shape[2:].numel()",
        f"out = torch.empty((x.shape[0], x.shape[1]{ones}), device=x.device, dtype=x.dtype)",
    )
    reason = (
        "The positions of a channel lie in one piece of memory, so the tensor is a matrix with a row a "
        "channel. A program reads its row once in blocks and stores one number."
    )
    small = row_launch(name, "x, out, n", 1024, 4, "out.numel()")
    large = row_launch(name, "x, out, n", 2048, 8, "out.numel()")
    fused = Answer("fused", (function,), (*host, small, "return out"), reason)
    tuned = Answer("tuned", (function,), (*host, large, "return out"), reason)
    old, new = ("tl.max(acc", "tl.min(acc") if largest else (" / n)", ")")
    wrong = mistake(fused, old, new, "wrong_extreme" if largest else "no_division")
    return draft(rng, "global_pool", (name,), _global_module(rng, rank, largest, keep), (fused, tuned, wrong))


def adaptive_pool(rng: random.Random) -> Draft:
    """Average or max pooling to a given output size; the bins may overlap."""
    largest = rng.random() < 0.35
    word = "Max" if largest else "Avg"
    sizes = pool_sizes(rng, 2, 7)
    out = rng.choice((5, 6, 7, 7, 8, 14))
    given = Size("output_size", out, 3)
    module = Module(
        doc=f"{'Maximum' if largest else 'Mean'} of bins, for a fixed output size.",
        init_args=("output_size: int",),
        init_lines=(f"self.pool = nn.Adaptive{word}Pool2d((output_size, output_size))",),
        forward_args=("x",),
        forward_lines=("return self.pool(x)",),
        sizes=(*sizes, given),
        inputs=(f"torch.randn({', '.join(size.name for size in sizes)})",),
        init_inputs=("output_size",),
    )
    kernel = fill(
        _BINS,
        START='float("-inf")' if largest else "0.0",
        ADD="tl.maximum(acc, x)" if largest else "acc + x",
        RESULT="tl.max(acc, axis=0)" if largest else "tl.sum(acc, axis=0) / ((h1 - h0) * (w1 - w0))",
    )
    reason = (
        "A bin runs from the floor to the ceiling of its share of the plane. A program takes one bin and "
        "reads its rows; lanes run along a row, so loads are contiguous."
    )

    def answer(grade: str, block: str) -> Answer:
        lines = (
            "x = x.contiguous()",
            "N, C, H, W = x.shape",
            "OH, OW = self.pool.output_size",
            "out = torch.empty((N, C, OH, OW), device=x.device, dtype=x.dtype)",
            "adaptive_pool_kernel[(out.numel(),)](",
            f"    x, out, H, W, OH, OW, BLOCK={block},",
            ")",
            "return out",
        )
        return Answer("naive" if grade == "naive" else "tuned", (kernel,), lines, reason)

    fitted = answer("tuned", "triton.next_power_of_2(triton.cdiv(W, OW) + 1), num_warps=1")
    wrong = mistake(fitted, "(oh + 1) * H + OH - 1", "(oh + 1) * H - OH", "bins_too_small")
    name = f"adaptive_{'max' if largest else 'avg'}_pool2d"
    return draft(rng, "adaptive_pool", (name,), module, (answer("naive", "64"), fitted, wrong))


def _global_module(rng: random.Random, rank: int, largest: bool, keep: bool) -> Module:
    sizes = pool_sizes(rng, rank, 7)
    axes = ", ".join(str(axis + 2) for axis in range(rank))
    axes = rng.choice((f"({axes})", f"[{axes}]")) if rank > 1 else axes
    kept = ", keepdim=True" if keep else ""
    ones = "(" + ", ".join("1" for _ in range(rank)) + ")"
    one = rng.choice(("1", ones)) if rank > 1 else "1"
    layer = f"self.pool = nn.Adaptive{'Max' if largest else 'Avg'}Pool{rank}d({one})"
    function = "amax" if largest else "mean"
    direct = rng.choice((f"torch.{function}(x, dim={axes}{kept})", f"x.{function}(dim={axes}{kept})"))
    with_layer = keep and rng.random() < 0.6
    return Module(
        doc="Reduces each channel to its " + ("maximum." if largest else "mean."),
        init_args=(),
        init_lines=(layer,) if with_layer else (),
        forward_args=("x",),
        forward_lines=("return self.pool(x)",) if with_layer else (f"return {direct}",),
        sizes=sizes,
        inputs=(f"torch.randn({', '.join(size.name for size in sizes)})",),
        init_inputs=(),
    )
