"""Kernels of attention with an online softmax: tiles of queries, wide heads, one query a program."""

from __future__ import annotations

FLASH = """
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, S, T, D, @HEADS@scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):
    # one program: BLOCK_M queries of one head against all keys
    blocks = tl.cdiv(S, BLOCK_M)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    rows = (tl.program_id(0) % blocks) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    q_offs = (head * S + rows[:, None]) * D + d[None, :]
    q_mask = (rows[:, None] < S) & (d[None, :] < D)
    q = tl.load(q_ptr + q_offs, mask=q_mask, other=0.0)
    @KEY_HEAD@
    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    s = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    for start in range(0, @END@, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k_offs = (@KV@ * T + cols[None, :]) * D + d[:, None]
        k = tl.load(k_ptr + k_offs, mask=(cols[None, :] < T) & (d[:, None] < D), other=0.0)
        scores = tl.dot(q, k@PRECISION@) * scale
        scores = tl.where(@VALID@, scores, float("-inf"))
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp(scores - new_m[:, None])
        alpha = tl.exp(m - new_m)
        s = s * alpha + tl.sum(p, axis=1)
        v_offs = (@KV@ * T + cols[:, None]) * D + d[None, :]
        v = tl.load(v_ptr + v_offs, mask=(cols[:, None] < T) & (d[None, :] < D), other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p, v@PRECISION@)
        m = new_m
    tl.store(out_ptr + q_offs, acc / s[:, None], mask=q_mask)
"""
WIDE = """
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, S, T, D, @HEADS@scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # one program: BLOCK_M queries of one head; scores in pieces of BLOCK_K along the head
    blocks = tl.cdiv(S, BLOCK_M)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    rows = (tl.program_id(0) % blocks) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    kk = tl.arange(0, BLOCK_K)
    @KEY_HEAD@
    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    s = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    for start in range(0, @END@, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        scores = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for j in range(0, D, BLOCK_K):
            c = j + kk
            q = tl.load(
                q_ptr + (head * S + rows[:, None]) * D + c[None, :],
                mask=(rows[:, None] < S) & (c[None, :] < D), other=0.0,
            )
            k = tl.load(
                k_ptr + (@KV@ * T + cols[None, :]) * D + c[:, None],
                mask=(cols[None, :] < T) & (c[:, None] < D), other=0.0,
            )
            scores += tl.dot(q, k@PRECISION@)
        scores = tl.where(@VALID@, scores * scale, float("-inf"))
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp(scores - new_m[:, None])
        alpha = tl.exp(m - new_m)
        s = s * alpha + tl.sum(p, axis=1)
        v_offs = (@KV@ * T + cols[:, None]) * D + d[None, :]
        v = tl.load(v_ptr + v_offs, mask=(cols[:, None] < T) & (d[None, :] < D), other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p, v@PRECISION@)
        m = new_m
    out_offs = (head * S + rows[:, None]) * D + d[None, :]
    tl.store(out_ptr + out_offs, acc / s[:, None], mask=(rows[:, None] < S) & (d[None, :] < D))
"""
ONE_QUERY = """
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, S, T, D, @HEADS@scale, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr
):
    # one program: one query against all keys, in blocks
    pid = tl.program_id(0).to(tl.int64)
    head = pid // S
    row = pid % S
    d = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + pid * D + d, mask=d < D, other=0.0)
    @KEY_HEAD@
    m = float("-inf")
    s = 0.0
    acc = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for start in range(0, @END@, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        offs = (@KV@ * T + cols[:, None]) * D + d[None, :]
        mask = (cols[:, None] < T) & (d[None, :] < D)
        k = tl.load(k_ptr + offs, mask=mask, other=0.0)
        scores = tl.sum(q[None, :] * k, axis=1) * scale
        scores = tl.where(@VALID@, scores, float("-inf"))
        new_m = tl.maximum(m, tl.max(scores, axis=0))
        p = tl.exp(scores - new_m)
        alpha = tl.exp(m - new_m)
        s = s * alpha + tl.sum(p, axis=0)
        v = tl.load(v_ptr + offs, mask=mask, other=0.0)
        acc = acc * alpha + tl.sum(p[:, None] * v, axis=0)
        m = new_m
    tl.store(out_ptr + pid * D + d, acc / s, mask=d < D)
"""
