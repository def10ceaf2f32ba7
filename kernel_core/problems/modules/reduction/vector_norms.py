"""Division by a norm: RMS, L1 and L2 along a dimension, Frobenius over a whole tensor."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.layout import draw_sizes
from kernel_core.problems.modules.reduction.skeletons import (
    ROW,
    ROW_SHIFT,
    ROW_WRITE,
    TILE,
    TILE_SHIFT,
    TILE_WRITE,
    either_launch,
    fixed_view,
    row_launch,
    tile_launch,
)


@dataclass(frozen=True)
class _Norm:
    """`@D@` stands for the dimension in torch's text; `total` is the sum in Triton's."""

    name: str
    doc: str
    torch: tuple[tuple[str, ...], ...]
    term: str
    norm: str
    """The divisor, from `total` and `n`."""
    weight: bool = False
    eps: bool = False


_SQUARES = "acc += x * x"
_NORMS = (
    _Norm(
        "rms_norm", "Divides by the root mean square along one dimension.",
        (
            ("rms = torch.sqrt(torch.mean(x * x, dim=@D@, keepdim=True) + self.eps)", "return x / rms"),
            ("mean_square = x.pow(2).mean(dim=@D@, keepdim=True)",
             "return x * torch.rsqrt(mean_square + self.eps)"),
        ),
        _SQUARES, "tl.sqrt(total / n + eps)", eps=True,
    ),
    _Norm(
        "rms_norm_weighted", "Root mean square normalization with a learned scale.",
        (
            ("mean_square = x.pow(2).mean(dim=@D@, keepdim=True)",
             "return self.weight * x * torch.rsqrt(mean_square + self.eps)"),
        ),
        _SQUARES, "tl.sqrt(total / n + eps)", weight=True, eps=True,
    ),
    _Norm(
        "l2_norm", "Scales vectors along one dimension to unit length.",
        (
            ("return x / torch.norm(x, p=2, dim=@D@, keepdim=True)",),
            ("return x / x.norm(dim=@D@, keepdim=True)",),
            ("length = torch.sqrt(torch.sum(x ** 2, dim=@D@, keepdim=True))", "return x / length"),
        ),
        _SQUARES, "tl.sqrt(total)",
    ),
    _Norm(
        "normalize", "Unit length along one dimension, safe for zero vectors.",
        (("return F.normalize(x, p=2, dim=@D@)",), ("return F.normalize(x, dim=@D@)",)),
        _SQUARES, "tl.maximum(tl.sqrt(total), 1e-12)",
    ),
    _Norm(
        "l1_norm", "Divides by the sum of absolute values along one dimension.",
        (
            ("return x / torch.sum(torch.abs(x), dim=@D@, keepdim=True)",),
            ("return x / x.abs().sum(dim=@D@, keepdim=True)",),
        ),
        "acc += tl.abs(x)", "total",
    ),
    _Norm(
        "l1_mean_norm", "Divides by the mean absolute value along one dimension.",
        (
            ("mean_abs = torch.mean(torch.abs(x), dim=@D@, keepdim=True)", "return x / mean_abs"),
            ("return x / x.abs().mean(dim=@D@, keepdim=True)",),
        ),
        "acc += tl.abs(x)", "total / n",
    ),
)  # fmt: skip


def vector_norm(rng: random.Random) -> Draft:
    """A division by a norm along the channels or along rows."""
    one = rng.choice(_NORMS)
    rank = rng.choice((2, 2, 3, 4, 4, 5))
    sizes = draw_sizes(rng, rank)
    dim = -1 if one.weight or (rank < 4 and rng.random() < 0.3) else 1
    channel = sizes[dim].name
    module = Module(
        doc=one.doc,
        init_args=(
            *(("num_features: int",) if one.eps else ()),
            *(("eps: float = 1e-5",) if one.eps else ()),
        ),
        init_lines=(
            *(("self.eps = eps",) if one.eps else ()),
            *(("self.weight = nn.Parameter(torch.ones(num_features))",) if one.weight else ()),
        ),
        forward_args=("x",),
        forward_lines=tuple(line.replace("@D@", str(dim)) for line in rng.choice(one.torch)),
        sizes=sizes,
        inputs=(f"torch.{rng.choice(('rand', 'randn'))}({', '.join(size.name for size in sizes)})",),
        init_inputs=(channel,) if one.eps else (),
    )
    host = (*fixed_view(1 if dim == 1 else -1), "out = torch.empty_like(x)")
    scalars = ", self.eps" if one.eps else ""
    weight = "self.weight, " if one.weight else ""
    tile = _tile(one)
    small = tile_launch(one.name, f"x, {weight}out, n, inner{scalars}")
    large = tile_launch(one.name, f"x, {weight}out, n, inner{scalars}", 8192, 8)
    fused = Answer("fused", (tile,), (*host, *small, "return out"), _TILE_REASON)
    tuned = Answer("tuned", (tile,), (*host, *large, "return out"), _TILE_REASON)
    rows = row_launch(f"{one.name}_row", f"x, {weight}out, n{scalars}", 1024)
    either = (*host, *either_launch(rows, small), "return out")
    naive = Answer("naive", (_row(one), tile), either, _EITHER_REASON)
    wrong = mistake(fused, "y = x / norm", "y = x * norm", "wrong_op")
    return draft(rng, "vector_norm", (one.name,), module, (naive, fused, tuned, wrong))


def frobenius_norm(rng: random.Random) -> Draft:
    """A whole tensor divided by its norm."""
    sizes = draw_sizes(rng, rng.choice((2, 3, 4, 4)))
    kind, forms, term, divisor = rng.choice(_WHOLE)
    module = Module(
        doc="Divides a tensor by one norm of all its values.",
        init_args=(),
        init_lines=(),
        forward_args=("x",),
        forward_lines=rng.choice(forms),
        sizes=sizes,
        inputs=(f"torch.{rng.choice(('rand', 'randn'))}({', '.join(size.name for size in sizes)})",),
        init_inputs=(),
    )
    functions = (fill(_PARTIAL, TERM=term), _DIVIDE)
    reason = (
        "Every output needs the norm of all values, so two kernels are needed: one block a program leaves a "
        "partial sum, and after these few sums are added a second kernel divides. x is read twice."
    )
    fused = Answer("fused", functions, _whole_lines(divisor, 4096, 4), reason)
    tuned = Answer("tuned", functions, _whole_lines(divisor, 8192, 8), reason)
    if ".sqrt()" in divisor:
        wrong = mistake(fused, ".sqrt()", "", "no_root")
    else:
        wrong = mistake(fused, "x / norm", "x * norm", "wrong_op")
    return draft(rng, "frobenius_norm", (kind,), module, (fused, tuned, wrong))


_WHOLE = (
    (
        "frobenius_norm",
        (
            ("return x / torch.norm(x, p='fro')",),
            ("norm = torch.norm(x)", "return x / norm"),
            ("norm = torch.sqrt(torch.sum(x ** 2))", "return x / norm"),
        ),
        "x * x",
        "partial.sum().sqrt()",
    ),
    (
        "rms_of_all",
        (("rms = torch.sqrt(torch.mean(x ** 2))", "return x / rms"), ("return x / x.pow(2).mean().sqrt()",)),
        "x * x",
        "(partial.sum() / numel).sqrt()",
    ),
    ("mean_abs_of_all", (("return x / torch.mean(torch.abs(x))",), ("return x / x.abs().mean()",)),
     "tl.abs(x)", "partial.sum() / numel"),
)  # fmt: skip
_PARTIAL = """
@triton.jit
def partial_kernel(x_ptr, partial_ptr, numel, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < numel, other=0.0)
    tl.store(partial_ptr + pid, tl.sum(@TERM@, axis=0))
"""
_DIVIDE = """
@triton.jit
def divide_kernel(x_ptr, norm_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    norm = tl.load(norm_ptr)
    x = tl.load(x_ptr + offs, mask=offs < numel, other=0.0)
    tl.store(out_ptr + offs, x / norm, mask=offs < numel)
"""
_TILE_REASON = (
    "The tensor is (outer, n, inner). A program owns a block of inner positions, adds up along n in a first "
    "pass and divides in a second, which finds most of the tile in cache. Nothing else is written."
)
_EITHER_REASON = (
    "The tensor is (outer, n, inner). With inner 1 a program takes one row in blocks and keeps a running sum "
    "a lane; else it owns a block of inner positions and walks over n. A second pass divides."
)


def _whole_lines(divisor: str, block: int, warps: int) -> tuple[str, ...]:
    more = "" if warps == 4 else f", num_warps={warps}"
    return (
        "x = x.contiguous()",
        "out = torch.empty_like(x)",
        "numel = x.numel()",
        f"grid = (triton.cdiv(numel, {block}),)",
        "partial = torch.empty(grid, device=x.device, dtype=torch.float32)",
        f"partial_kernel[grid](x, partial, numel, BLOCK={block}{more})",
        f"norm = {divisor}",
        f"divide_kernel[grid](x, norm, out, numel, BLOCK={block}{more})",
        "return out",
    )


def _tile(one: _Norm) -> str:
    weight = "tl.load(weight_ptr + r, mask=r < n, other=0.0)"
    value = f"y = x / norm[None, :]{' * ' + weight if one.weight else ''}"
    total = f"total = tl.sum(acc, axis=0)\nnorm = {one.norm}\n"
    return fill(
        TILE, K=one.name, MORE="weight_ptr, " if one.weight else "", SCALARS="eps, " if one.eps else "",
        SHIFT=TILE_SHIFT, OTHER="0.0", UPDATE=one.term,
        INIT="acc = tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.float32)",
        FINISH=total + fill(TILE_WRITE, MAP=value),
    )  # fmt: skip


def _row(one: _Norm) -> str:
    weight = "tl.load(weight_ptr + cols, mask=cols < n, other=0.0)"
    value = f"y = x / norm{' * ' + weight if one.weight else ''}"
    total = f"total = tl.sum(acc, axis=0)\nnorm = {one.norm}\n"
    return fill(
        ROW, K=f"{one.name}_row", MORE="weight_ptr, " if one.weight else "",
        SCALARS="eps, " if one.eps else "", SHIFT=ROW_SHIFT, OTHER="0.0", UPDATE=one.term,
        INIT="acc = tl.zeros((BLOCK,), dtype=tl.float32)", FINISH=total + fill(ROW_WRITE, MAP=value),
    )  # fmt: skip
