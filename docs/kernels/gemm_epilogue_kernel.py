# x: torch.randn(TOKENS, WIDTH) is (8192, 256) float32
# residual: torch.randn(TOKENS, HIDDEN) is (8192, 4096) float32
# linear, gelu, add: one kernel.
# linear_gelu_kernel: M = x.numel() // x.shape[-1], N = self.linear.weight.shape[0], K = x.shape[-1]. Fuses add, gelu_erf. Each program computes one tile and its epilogue; groups of tiles share operands in the L2 cache.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


TF32X3_CONFIGS = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8, num_stages=3),
]


@triton.autotune(configs=TF32X3_CONFIGS, key=["M", "N", "K"])
@triton.jit
def linear_gelu_kernel(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, out_ptr, M, N, K, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # Each program computes one tile and its epilogue; groups of tiles share operands in the L2 cache.
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = tl.swizzle2d(
        tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n, tiles_m, tiles_n, 8,
    )
    m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_in = m % M
    n_in = n % N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        offsets = m_in[:, None] * K + k[None, :]
        x = tl.load(x_ptr + offsets, mask=k[None, :] < K, other=0.0)
        weight_offsets = n_in[None, :] * K + k[:, None]
        weight = tl.load(weight_ptr + weight_offsets, mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x, weight, acc, input_precision="tf32x3")
    bias = tl.load(bias_ptr + n[None, :], mask=n[None, :] < N, other=0.0)
    total = acc + bias
    mask = (m[:, None] < M) & (n[None, :] < N)
    offsets = m[:, None] * N + n[None, :]
    residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0)
    out = 0.5 * total * (1.0 + tl.erf(0.7071067811865476 * total)) + residual
    tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.linear = nn.Linear(width, hidden)

    def forward(self, x, residual):
        x = x.contiguous()
        residual = residual.contiguous()
        out = torch.empty(
            (*x.shape[:-1], self.linear.weight.shape[0]), device=x.device, dtype=x.dtype,
        )
        M = x.numel() // x.shape[-1]
        N = self.linear.weight.shape[0]
        K = x.shape[-1]
        grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
        linear_gelu_kernel[grid](x, self.linear.weight, self.linear.bias, residual, out, M, N, K)
        return out
