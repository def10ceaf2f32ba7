"""Linear, scaled, plus itself in one kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_residual_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    M,
    N,
    K,
    scaling_factor,
    M_TILE: tl.constexpr,
    N_TILE: tl.constexpr,
    K_TILE: tl.constexpr,
):
    rows = tl.program_id(0) * M_TILE + tl.arange(0, M_TILE)
    columns = tl.program_id(1) * N_TILE + tl.arange(0, N_TILE)
    total = tl.zeros((M_TILE, N_TILE), dtype=tl.float32)
    for start in range(0, K, K_TILE):
        inner = start + tl.arange(0, K_TILE)
        x_inside = (rows[:, None] < M) & (inner[None, :] < K)
        w_inside = (inner[:, None] < K) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * K + inner[None, :], mask=x_inside, other=0.0)
        w = tl.load(weight_ptr + columns[None, :] * K + inner[:, None], mask=w_inside, other=0.0)
        total += tl.dot(x, w, input_precision="ieee")
    y = total + tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
    y = y * scaling_factor + y
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = x.contiguous()
        (M, K), N = x.shape, self.matmul.out_features
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        linear_residual_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
            x,
            self.matmul.weight,
            self.matmul.bias,
            y,
            M,
            N,
            K,
            self.scaling_factor,
            M_TILE=64,
            N_TILE=64,
            K_TILE=32,
        )
        return y
