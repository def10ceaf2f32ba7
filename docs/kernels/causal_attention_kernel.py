# q: torch.randn(BATCH, HEADS, TOKENS, WIDTH) is (8, 16, 2048, 64) float32
# k: torch.randn(BATCH, HEADS, TOKENS, WIDTH) is (8, 16, 2048, 64) float32
# v: torch.randn(BATCH, HEADS, TOKENS, WIDTH) is (8, 16, 2048, 64) float32
# scaled_dot_product_attention: one kernel.
# attention_kernel: M = q.shape[2], N = k.shape[2], D = q.shape[-1], E = v.shape[-1], n_batches = q.shape[:2].numel(). Fuses where, le, mul. Each program owns a block of queries, loops over tiles of keys, and keeps an online softmax.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
import math


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, D, E, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):
    # Each program owns a block of queries, loops over tiles of keys, and keeps an online softmax.
    m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_E)
    z = tl.program_id(1).to(tl.int64)
    mask = (d[None, :] < D) & (m[:, None] < M)
    q = tl.load(q_ptr + (z * M + m[:, None]) * D + d[None, :], mask=mask, other=0.0)
    top = tl.full((BLOCK_M, 1), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, 1), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_E), dtype=tl.float32)
    end = tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_M)
    for start in range(0, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k_mask = (d[:, None] < D) & (n[None, :] < N)
        k_offsets = (z * N + n[None, :]) * D + d[:, None]
        k = tl.load(k_ptr + k_offsets, mask=k_mask, other=0.0)
        qk = tl.dot(q, k, input_precision="tf32x3")
        chosen = tl.where(n[None, :] <= m[:, None], qk * scale, float("-inf"))
        scores = tl.where(n[None, :] < N, chosen, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1, keep_dims=True))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp(scores - shift)
        shrink = tl.exp(top - shift)
        total = total * shrink + tl.sum(weights, axis=1, keep_dims=True)
        v_mask = (e[None, :] < E) & (n[:, None] < N)
        v_offsets = (z * N + n[:, None]) * E + e[None, :]
        v = tl.load(v_ptr + v_offsets, mask=v_mask, other=0.0)
        acc = acc * shrink + tl.dot(weights, v, input_precision="tf32x3")
        top = new_top
    acc = acc / total
    out_offsets = (z * M + m[:, None]) * E + e[None, :]
    tl.store(out_ptr + out_offsets, acc, mask=(e[None, :] < E) & (m[:, None] < M))


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q = q.contiguous()
        k = k.contiguous()
        v = v.contiguous()
        out = torch.empty((*q.shape[:-1], v.shape[-1]), device=q.device, dtype=q.dtype)
        M = q.shape[2]
        N = k.shape[2]
        D = q.shape[-1]
        E = v.shape[-1]
        n_batches = q.shape[:2].numel()
        attention_kernel[(triton.cdiv(M, 64), n_batches)](
            q, k, v, out, M, N, D, E, 1.0 / math.sqrt(q.shape[-1]), BLOCK_M=64, BLOCK_N=64,
            BLOCK_D=max(16, triton.next_power_of_2(D)), BLOCK_E=max(16, triton.next_power_of_2(E)),
        )
        return out
