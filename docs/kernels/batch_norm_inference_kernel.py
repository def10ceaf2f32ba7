# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 128, 128, 128) float32
# residual: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 128, 128, 128) float32
# batch_norm, add, relu: one kernel.
# batch_norm_relu_kernel: n_cols = x.shape[2:].numel(), n_rows = x.shape[:2].numel(). Fuses relu, add, mul, sub, rsqrt. Each program computes one block of a row.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def batch_norm_relu_kernel(
    x_ptr, running_mean_ptr, running_var_ptr, weight_ptr, bias_ptr, residual_ptr, out_ptr, n_cols,
    channels, BLOCK: tl.constexpr,
):
    # Each program computes one block of a row.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    offsets = row * n_cols + cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    channel = row % channels
    running_mean = tl.load(running_mean_ptr + channel)
    running_var = tl.load(running_var_ptr + channel)
    weight = tl.load(weight_ptr + channel)
    bias = tl.load(bias_ptr + channel)
    total = (x - running_mean) * tl.rsqrt(running_var + 1e-05) * weight + bias
    residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0)
    out = tl.maximum(total + residual, 0)
    tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))
        self.register_buffer("running_mean", torch.randn(channels))
        self.register_buffer("running_var", torch.rand(channels) + 0.5)

    def forward(self, x, residual):
        x = x.contiguous()
        residual = residual.contiguous()
        out = torch.empty_like(x)
        n_cols = x.shape[2:].numel()
        n_rows = x.shape[:2].numel()
        batch_norm_relu_kernel[(n_rows, triton.cdiv(n_cols, 1024))](
            x, self.running_mean, self.running_var, self.weight, self.bias, residual, out, n_cols,
            x.shape[1], BLOCK=1024,
        )
        return out
