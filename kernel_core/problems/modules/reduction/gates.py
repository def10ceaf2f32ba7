"""Rows with two halves or with a mask: gated units, rotary positions, softmax of masked scores."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.program import Size

_GATED = """
@triton.jit
def gated_kernel(x_ptr, out_ptr, numel, half, BLOCK: tl.constexpr):
    # one program: BLOCK outputs, each from the two halves of its row
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    first = (offs // half) * (2 * half) + offs % half
    a = tl.load(x_ptr + first, mask=mask, other=0.0)
    b = tl.load(x_ptr + first + half, mask=mask, other=0.0)
    tl.store(out_ptr + offs, @VALUE@, mask=mask)
"""
_GATED_ROW = """
@triton.jit
def gated_kernel(x_ptr, out_ptr, half, BLOCK: tl.constexpr):
    # one program: one row
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, half, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < half
        a = tl.load(x_ptr + row * 2 * half + cols, mask=mask, other=0.0)
        b = tl.load(x_ptr + row * 2 * half + half + cols, mask=mask, other=0.0)
        tl.store(out_ptr + row * half + cols, @VALUE@, mask=mask)
"""
_ROTARY = """
@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, S, half, BLOCK: tl.constexpr):
    # one program: one position of one head, both halves
    row = tl.program_id(0).to(tl.int64)
    position = row % S
    cols = tl.arange(0, BLOCK)
    mask = cols < half
    a = tl.load(x_ptr + row * 2 * half + cols, mask=mask, other=0.0)
    b = tl.load(x_ptr + row * 2 * half + half + cols, mask=mask, other=0.0)
    cos = tl.load(cos_ptr + position * half + cols, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + position * half + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * 2 * half + cols, a * cos - b * sin, mask=mask)
    tl.store(out_ptr + row * 2 * half + half + cols, b * cos + a * sin, mask=mask)
"""
_ROTARY_FLAT = """
@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, numel, S, half, BLOCK: tl.constexpr):
    # one program: BLOCK outputs, each from itself and its partner in the other half
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    row = offs // (2 * half)
    col = offs % (2 * half)
    angle = (row % S) * half + col % half
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    partner = tl.load(x_ptr + row * 2 * half + (col + half) % (2 * half), mask=mask, other=0.0)
    cos = tl.load(cos_ptr + angle, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=mask, other=0.0)
    sign = tl.where(col < half, -1.0, 1.0)
    tl.store(out_ptr + offs, x * cos + sign * partner * sin, mask=mask)
"""
_SOFTMAX = """
@triton.jit
def masked_softmax_kernel(x_ptr, mask_ptr, out_ptr, n, rows_of_mask, scale, BLOCK: tl.constexpr):
    # one program: one row of scores; the mask is shared by several matrices
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptr += row * n
    out_ptr += row * n
    mask_ptr += (row % rows_of_mask) * n
    m = float("-inf")
    s = 0.0
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + cols, mask=cols < n, other=float("-inf"))
        x = x * scale + tl.load(mask_ptr + cols, mask=cols < n, other=0.0)
        new_m = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
        m = new_m
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
        x = x * scale + tl.load(mask_ptr + cols, mask=cols < n, other=0.0)
        tl.store(out_ptr + cols, tl.exp(x - m) / s, mask=cols < n)
"""
_GATES = (
    ("glu", "return F.glu(x, dim=-1)", "a * tl.sigmoid(b)"),
    ("glu", "a, b = x.chunk(2, dim=-1)|return a * torch.sigmoid(b)", "a * tl.sigmoid(b)"),
    ("swiglu", "gate, value = x.chunk(2, dim=-1)|return F.silu(gate) * value", "a * tl.sigmoid(a) * b"),
    ("geglu", "value, gate = x.chunk(2, dim=-1)|return value * F.gelu(gate)",
     "a * 0.5 * b * (1.0 + tl.erf(b * 0.70710678))"),
    ("reglu", "gate, value = torch.chunk(x, 2, dim=-1)|return F.relu(gate) * value",
     "tl.maximum(a, 0.0) * b"),
)  # fmt: skip


def gated(rng: random.Random) -> Draft:
    """A gated linear unit of the two halves of each row."""
    name, text, value = rng.choice(_GATES)
    batch, length, half = rng.choice(
        ((16, 512, 2048), (8, 1024, 2816), (32, 256, 3000), (4, 2048, 4096), (64, 200, 1024), (8, 1000, 1500))
    )
    sizes = (Size("batch_size", batch, 3), Size("seq_len", length, 5), Size("features", 2 * half, 74))
    module = Module(
        doc="Multiplies one half of each row with a gate from the other.",
        init_args=(),
        init_lines=(),
        forward_args=("x",),
        forward_lines=tuple(text.split("|")),
        sizes=sizes,
        inputs=("torch.randn(batch_size, seq_len, features)",),
        init_inputs=(),
    )
    reason = (
        "Both halves are read once and one half is written; the gate stays in registers. The halves of a row "
        "are a fixed distance apart, so each output needs two loads."
    )
    head = (
        "x = x.contiguous()",
        "half = x.shape[-1] // 2",
        "out = torch.empty((*x.shape[:-1], half), device=x.device, dtype=x.dtype)",
    )
    flat = "gated_kernel[(triton.cdiv(out.numel(), 1024),)](x, out, out.numel(), half, BLOCK=1024)"
    row = "gated_kernel[(out.numel() // half,)](x, out, half, BLOCK=min(2048, triton.next_power_of_2(half)))"
    naive = Answer("naive", (fill(_GATED, VALUE=value),), (*head, flat, "return out"), reason)
    fused = Answer("fused", (fill(_GATED_ROW, VALUE=value),), (*head, row, "return out"), reason)
    wrong = mistake(fused, "half + cols, mask", "cols, mask", "same_half_twice")
    return draft(rng, "gated", (name,), module, (naive, fused, wrong))


def rotary(rng: random.Random) -> Draft:
    """Rotary position embedding of queries or keys."""
    batch, heads, length, width = rng.choice(
        ((8, 16, 1024, 64), (4, 32, 2048, 64), (16, 12, 512, 128), (8, 8, 2000, 96), (2, 16, 4096, 128))
    )
    sizes = (
        Size("batch_size", batch, 2), Size("num_heads", heads, 2), Size("seq_len", length, 7),
        Size("head_dim", width, 12),
    )  # fmt: skip
    module = Module(
        doc="Rotates pairs of features by an angle for each position.",
        init_args=(),
        init_lines=(),
        forward_args=("x", "cos", "sin"),
        forward_lines=(
            "a, b = x.chunk(2, dim=-1)",
            "return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)",
        ),
        sizes=sizes,
        inputs=(
            "torch.randn(batch_size, num_heads, seq_len, head_dim)",
            "torch.randn(seq_len, head_dim // 2)",
            "torch.randn(seq_len, head_dim // 2)",
        ),
        init_inputs=(),
    )
    lines = (
        "x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()",
        "S, half = x.shape[-2], x.shape[-1] // 2",
        "out = torch.empty_like(x)",
        "rows = x.numel() // (2 * half)",
        "rotary_kernel[(rows,)](x, cos, sin, out, S, half, BLOCK=triton.next_power_of_2(half), num_warps=1)",
        "return out",
    )
    reason = (
        "A program takes one position of one head: both halves and the two angles are loaded once, and both "
        "halves of the result are written, so no rotated copy is stored."
    )
    fused = Answer("fused", (_ROTARY,), lines, reason)
    flat = (
        *lines[:3],
        "numel = x.numel()",
        "grid = (triton.cdiv(numel, 1024),)",
        "rotary_kernel[grid](x, cos, sin, out, numel, S, half, BLOCK=1024)",
        "return out",
    )
    flat_reason = (
        "Each output needs its own value and the partner half a row away. A flat block of outputs works out "
        "row and column from the index, so any shape is served by one kernel."
    )
    naive = Answer("naive", (_ROTARY_FLAT,), flat, flat_reason)
    wrong = mistake(fused, "b * cos + a * sin", "b * cos - a * sin", "wrong_sign")
    other = mistake(fused, "position * half", "row % 2 * half", "wrong_position")
    return draft(rng, "rotary", ("rotary",), module, (naive, fused, wrong, other))


def masked_softmax(rng: random.Random) -> Draft:
    """Softmax of scaled scores with an additive mask."""
    batch, heads, length = rng.choice(
        ((8, 12, 512), (4, 16, 1000), (16, 8, 512), (2, 16, 1024), (4, 12, 768))
    )
    sizes = (Size("batch_size", batch, 1), Size("num_heads", heads, 3), Size("seq_len", length, 11))
    factor = rng.choice(("0.125", "0.1", "0.25", "0.0884"))
    module = Module(
        doc="Softmax of scaled scores under an additive mask.",
        init_args=("scale: float",),
        init_lines=("self.scale = scale",),
        forward_args=("scores", "mask"),
        forward_lines=rng.choice(
            (
                ("return torch.softmax(scores * self.scale + mask, dim=-1)",),
                ("scores = scores * self.scale + mask", "return F.softmax(scores, dim=-1)"),
            )
        ),
        sizes=sizes,
        inputs=(
            f"{rng.choice(('8.0', '10.0'))} * torch.randn(batch_size, num_heads, seq_len, seq_len)",
            "torch.randn(seq_len, seq_len)",
        ),
        init_inputs=(factor,),
    )

    def lines(block: str, warps: str) -> tuple[str, ...]:
        return (
            "scores, mask = scores.contiguous(), mask.contiguous()",
            "n = scores.shape[-1]",
            "rows = scores.numel() // n",
            "out = torch.empty_like(scores)",
            "masked_softmax_kernel[(rows,)](",
            f"    scores, mask, out, n, mask.numel() // n, self.scale, BLOCK={block}{warps}",
            ")",
            "return out",
        )

    reason = (
        "Scale, mask and softmax are one pass over each row, so no scaled copy of the scores is stored. The "
        "mask repeats for every head, so its row is the row index modulo its height."
    )
    naive = Answer("naive", (_SOFTMAX,), lines("256", ""), reason)
    fused = Answer("fused", (_SOFTMAX,), lines("min(4096, triton.next_power_of_2(n))", ""), reason)
    wrong = mistake(fused, "x = x * scale +", "x = x +", "no_scale")
    other = mistake(fused, "(row % rows_of_mask) * n", "(row // rows_of_mask) * n", "wrong_row")
    return draft(rng, "masked_softmax", ("mul", "add", "softmax"), module, (naive, fused, wrong, other))
