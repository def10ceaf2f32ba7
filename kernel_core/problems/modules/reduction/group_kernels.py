"""Kernels that normalize groups of neighbours: a program a group, or several programs for a long group."""

from __future__ import annotations

THREE_PASSES = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, @SCALARS@eps, BLOCK: tl.constexpr):
    # one program: one group of n neighbours
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    base = row.to(tl.int64) * n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + base + cols, mask=cols < n, other=0.0)
        @ADD@
        total += x
    mean = tl.sum(total, axis=0) / n
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + base + cols, mask=cols < n, other=0.0)
        @ADD@
        d = tl.where(cols < n, x - mean, 0.0)
        square += d * d
    rstd = 1.0 / tl.sqrt(tl.sum(square, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        cols = start + offs
        mask = cols < n
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0)
        @ADD@
        y = (x - mean) * rstd
        @AFFINE@
        @AFTER@
        tl.store(out_ptr + base + cols, y, mask=mask)
"""
TWO_PASSES = """
@triton.jit
def @K@_kernel(x_ptr, @MORE@out_ptr, n, @SCALARS@eps, BLOCK: tl.constexpr):
    # one program: one group of n neighbours
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    base = row.to(tl.int64) * n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + base + cols, mask=cols < n, other=0.0)
        @ADD@
        total += x
        square += x * x
    mean = tl.sum(total, axis=0) / n
    var = tl.maximum(tl.sum(square, axis=0) / n - mean * mean, 0.0)
    rstd = 1.0 / tl.sqrt(var + eps)
    for start in range(0, n, BLOCK):
        cols = start + offs
        mask = cols < n
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0)
        @ADD@
        y = (x - mean) * rstd
        @AFFINE@
        @AFTER@
        tl.store(out_ptr + base + cols, y, mask=mask)
"""
PART = """
@triton.jit
def stats_kernel(x_ptr, @RESIDUAL@sum_ptr, square_ptr, n, parts, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    # one program: one chunk of one group
    pid = tl.program_id(0)
    base = (pid // parts).to(tl.int64) * n
    first = (pid % parts) * CHUNK
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, CHUNK, BLOCK):
        cols = first + start + offs
        x = tl.load(x_ptr + base + cols, mask=cols < n, other=0.0)
        @ADD@
        total += x
        square += x * x
    tl.store(sum_ptr + pid, tl.sum(total, axis=0))
    tl.store(square_ptr + pid, tl.sum(square, axis=0))
"""
PART_APPLY = """
@triton.jit
def apply_kernel(
    x_ptr, @MORE@sum_ptr, square_ptr, out_ptr, n, @SCALARS@parts, eps,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):
    # one program: combine the sums of a group, then write one chunk
    pid = tl.program_id(0)
    row = pid // parts
    p = tl.arange(0, PARTS)
    mean = tl.sum(tl.load(sum_ptr + row * parts + p, mask=p < parts, other=0.0), axis=0) / n
    mean_square = tl.sum(tl.load(square_ptr + row * parts + p, mask=p < parts, other=0.0), axis=0) / n
    rstd = 1.0 / tl.sqrt(tl.maximum(mean_square - mean * mean, 0.0) + eps)
    base = row.to(tl.int64) * n
    first = (pid % parts) * CHUNK
    offs = tl.arange(0, BLOCK)
    for start in range(0, CHUNK, BLOCK):
        cols = first + start + offs
        mask = cols < n
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0)
        @ADD@
        y = (x - mean) * rstd
        @AFFINE@
        @AFTER@
        tl.store(out_ptr + base + cols, y, mask=mask)
"""
BY_CHANNEL = """\
c = @FIRST@cols // spatial
w = tl.load(weight_ptr + c, mask=mask, other=0.0)
y = y * w + tl.load(bias_ptr + c, mask=mask, other=0.0)"""
BY_POSITION = """\
w = tl.load(weight_ptr + cols, mask=mask, other=0.0)
y = y * w + tl.load(bias_ptr + cols, mask=mask, other=0.0)"""
