# problem: matmul
# at most: 0.5
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int64)
    for k in range(K):
        a = (tl.load(a_ptr + m * K + k, mask=m < M, other=0.0) * 1048576.0).to(tl.int64)
        b = (tl.load(b_ptr + k * N + n, mask=n < N, other=0.0) * 1048576.0).to(tl.int64)
        acc += a[:, None] * b[None, :]
    c = acc.to(tl.float32) * (1.0 / 1099511627776.0)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c, mask=(m < M)[:, None] & (n < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty(M, N, device=a.device)
        mm[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, b, c, M, N, K, BM=64, BN=64)
        return c
