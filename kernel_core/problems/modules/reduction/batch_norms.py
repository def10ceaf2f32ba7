"""Batch normalization with the batch's own statistics, and perhaps an activation behind it."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.pointwise import Pointwise, pointwise
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.layout import draw_sizes
from kernel_core.problems.program import Size

_CHANNEL = """
@triton.jit
def batch_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, N, C, S, eps, BLOCK: tl.constexpr):
    # one program: one channel of all images
    c = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(N):
        base = x_ptr + (i * C + c).to(tl.int64) * S
        for start in range(0, S, BLOCK):
            total += tl.load(base + start + offs, mask=start + offs < S, other=0.0)
    mean = tl.sum(total, axis=0) / (N * S)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(N):
        base = x_ptr + (i * C + c).to(tl.int64) * S
        for start in range(0, S, BLOCK):
            x = tl.load(base + start + offs, mask=start + offs < S, other=0.0)
            d = tl.where(start + offs < S, x - mean, 0.0)
            square += d * d
    scale = tl.load(weight_ptr + c) / tl.sqrt(tl.sum(square, axis=0) / (N * S) + eps)
    shift = tl.load(bias_ptr + c) - mean * scale
    for i in range(N):
        base = (i * C + c).to(tl.int64) * S
        for start in range(0, S, BLOCK):
            mask = start + offs < S
            x = tl.load(x_ptr + base + start + offs, mask=mask, other=0.0)
            y = x * scale + shift
            @AFTER@
            tl.store(out_ptr + base + start + offs, y, mask=mask)
"""
_STATISTICS = """
@triton.jit
def bn_stats_kernel(x_ptr, mean_ptr, m2_ptr, S, BLOCK: tl.constexpr):
    # one program: mean and squared deviations of one channel of one image
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x_ptr += row.to(tl.int64) * S
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, S, BLOCK):
        total += tl.load(x_ptr + start + offs, mask=start + offs < S, other=0.0)
    mean = tl.sum(total, axis=0) / S
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, S, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < S, other=0.0)
        d = tl.where(start + offs < S, x - mean, 0.0)
        square += d * d
    tl.store(mean_ptr + row, mean)
    tl.store(m2_ptr + row, tl.sum(square, axis=0))
"""
_APPLY = """
@triton.jit
def bn_apply_kernel(
    x_ptr, mean_ptr, m2_ptr, weight_ptr, bias_ptr, out_ptr, N, C, S, eps,
    BLOCK: tl.constexpr, BLOCK_N: tl.constexpr,
):
    # one program: combine the statistics of all images, then one channel of one image
    row = tl.program_id(0)
    c = row % C
    i = tl.arange(0, BLOCK_N)
    means = tl.load(mean_ptr + i * C + c, mask=i < N, other=0.0)
    m2 = tl.load(m2_ptr + i * C + c, mask=i < N, other=0.0)
    mean = tl.sum(means, axis=0) / N
    d = tl.where(i < N, means - mean, 0.0)
    var = tl.sum(m2 + S * d * d, axis=0) / (N * S)
    scale = tl.load(weight_ptr + c) / tl.sqrt(var + eps)
    shift = tl.load(bias_ptr + c) - mean * scale
    offs = tl.arange(0, BLOCK)
    base = row.to(tl.int64) * S
    for start in range(0, S, BLOCK):
        mask = start + offs < S
        x = tl.load(x_ptr + base + start + offs, mask=mask, other=0.0)
        y = x * scale + shift
        @AFTER@
        tl.store(out_ptr + base + start + offs, y, mask=mask)
"""
_COLUMNS = """
@triton.jit
def batch_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, N, C, eps, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr
):
    # one program: BLOCK_C features of the whole batch
    cols = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = cols < C
    rows = tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        r = start + rows[:, None]
        offs = r.to(tl.int64) * C + cols[None, :]
        total += tl.load(x_ptr + offs, mask=(r < N) & inside[None, :], other=0.0)
    mean = tl.sum(total, axis=0) / N
    square = tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        r = start + rows[:, None]
        offs = r.to(tl.int64) * C + cols[None, :]
        x = tl.load(x_ptr + offs, mask=(r < N) & inside[None, :], other=0.0)
        d = tl.where(r < N, x - mean[None, :], 0.0)
        square += d * d
    var = tl.sum(square, axis=0) / N
    scale = tl.load(weight_ptr + cols, mask=inside, other=0.0) / tl.sqrt(var + eps)
    shift = tl.load(bias_ptr + cols, mask=inside, other=0.0) - mean * scale
    for start in range(0, N, BLOCK_N):
        r = start + rows[:, None]
        offs = r.to(tl.int64) * C + cols[None, :]
        mask = (r < N) & inside[None, :]
        x = tl.load(x_ptr + offs, mask=mask, other=0.0)
        y = x * scale[None, :] + shift[None, :]
        @AFTER@
        tl.store(out_ptr + offs, y, mask=mask)
"""
_ACTIVATIONS = ("relu", "silu", "gelu", "leaky_relu", "sigmoid", "tanh", "elu", "hardswish")


def batch_norm(rng: random.Random) -> Draft:
    """BatchNorm1d, 2d or 3d in training mode."""
    rank = rng.choice((2, 3, 4, 4, 4, 5))
    sizes = draw_sizes(rng, rank)
    activation = pointwise(rng.choice(_ACTIVATIONS), rng) if rng.random() < 0.35 else None
    module = _module(rng, rank, sizes[1].name, activation, [size.name for size in sizes], sizes)
    after = f"y = {activation.triton.replace('{v}', 'y')}" if activation else ""
    operators = ("batch_norm", *((activation.operator,) if activation else ()))
    if rank == 2:
        answers = _column_answers(after)
    else:
        answers = _image_answers(after)
    right = answers[-1]
    wrong = mistake(right, "bias_ptr + c", "weight_ptr + c", "wrong_parameter")
    unscaled = mistake(right, "/ tl.sqrt(var + eps)", "/ (var + eps)", "no_root")
    return draft(rng, "batch_norm", operators, module, (*answers, wrong, unscaled))


def _module(
    rng: random.Random,
    rank: int,
    channels: str,
    activation: Pointwise | None,
    names: list[str],
    sizes: tuple[Size, ...],
) -> Module:
    kind = {2: 1, 3: 1, 4: 2, 5: 3}[rank]
    named = rng.choice(
        (f"nn.BatchNorm{kind}d(num_features)", f"nn.BatchNorm{kind}d(num_features=num_features)")
    )
    text = activation.torch.replace("{v}", "x") if activation else ""
    return Module(
        doc="Batch normalization"
        + (" followed by an activation." if activation else " with batch statistics."),
        init_args=("num_features: int",),
        init_lines=(f"self.bn = {named}",),
        forward_args=("x",),
        forward_lines=("x = self.bn(x)", f"return {text}") if activation else ("return self.bn(x)",),
        sizes=sizes,
        inputs=(f"torch.{rng.choice(('rand', 'randn'))}({', '.join(names)})",),
        init_inputs=(channels,),
    )


_VIEW = ("x = x.contiguous()", "N, C, S = x.shape[0], x.shape[1], x.shape[2:].numel()")


def _image_answers(after: str) -> list[Answer]:
    channel = fill(_CHANNEL, AFTER=after)
    functions = (_STATISTICS, fill(_APPLY, AFTER=after))
    naive = Answer(
        "naive", (channel,),
        (
            *_VIEW, "out = torch.empty_like(x)",
            "batch_norm_kernel[(C,)](x, self.bn.weight, self.bn.bias, out, N, C, S, self.bn.eps, BLOCK=1024)",
            "return out",
        ),
        "Each channel has its own mean and variance over batch and positions, so a program takes a channel: "
        "one pass for the mean, one for the variance, one to write.",
    )  # fmt: skip
    reason = (
        "There are few channels and many images, so a program a channel leaves the GPU idle. The first "
        "kernel takes the statistics of each channel of each image; the second combines them over the batch "
        "and normalizes."
    )
    return [
        naive,
        Answer("fused", functions, _two_kernels(1024, 4), reason),
        Answer("tuned", functions, _two_kernels(4096, 8), reason),
    ]


def _two_kernels(block: int, warps: int) -> tuple[str, ...]:
    more = "" if warps == 4 else f", num_warps={warps}"
    return (
        *_VIEW,
        "out = torch.empty_like(x)",
        "mean = torch.empty(N * C, device=x.device, dtype=torch.float32)",
        "m2 = torch.empty_like(mean)",
        f"bn_stats_kernel[(N * C,)](x, mean, m2, S, BLOCK={block}{more})",
        "bn_apply_kernel[(N * C,)](",
        "    x, mean, m2, self.bn.weight, self.bn.bias, out, N, C, S, self.bn.eps,",
        f"    BLOCK={block}, BLOCK_N=triton.next_power_of_2(N){more},",
        ")",
        "return out",
    )


def _column_answers(after: str) -> list[Answer]:
    function = fill(_COLUMNS, AFTER=after)
    reason = (
        "Features are neighbours in memory, so a program takes a block of features and walks over the batch "
        "in tiles: mean, then variance, then the result. All loads are contiguous."
    )

    def lines(rows: int, columns: int, warps: int) -> tuple[str, ...]:
        more = "" if warps == 4 else f", num_warps={warps}"
        return (
            "x = x.contiguous()",
            "N, C = x.shape",
            "out = torch.empty_like(x)",
            f"batch_norm_kernel[(triton.cdiv(C, {columns}),)](",
            "    x, self.bn.weight, self.bn.bias, out, N, C, self.bn.eps,",
            f"    BLOCK_N={rows}, BLOCK_C={columns}{more},",
            ")",
            "return out",
        )

    return [
        Answer("fused", (function,), lines(32, 64, 4), reason),
        Answer("tuned", (function,), lines(64, 64, 8), reason),
    ]
