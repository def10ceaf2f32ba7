# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 128, 128, 128) float32
# residual: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 128, 128, 128) float32
# batch_norm, add, relu: one kernel.
# batch_norm_relu_kernel: n_elements = x.numel(). Fuses relu, add, mul, sub, rsqrt. Each program computes one block of elements.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def batch_norm_relu_kernel(
    x_ptr, running_mean_ptr, running_var_ptr, weight_ptr, bias_ptr, residual_ptr, out_ptr,
    n_elements, channels, inner, BLOCK: tl.constexpr,
):
    # Each program computes one block of elements.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    channel = i // inner % channels
    running_mean = tl.load(running_mean_ptr + channel, mask=mask, other=0.0)
    running_var = tl.load(running_var_ptr + channel, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + channel, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + channel, mask=mask, other=0.0)
    total = (x - running_mean) * tl.rsqrt(running_var + 1e-05) * weight + bias
    residual = tl.load(residual_ptr + i, mask=mask, other=0.0)
    out = tl.maximum(total + residual, 0)
    tl.store(out_ptr + i, out, mask=mask)


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
        n_elements = x.numel()
        batch_norm_relu_kernel[(triton.cdiv(n_elements, 1024),)](
            x, self.running_mean, self.running_var, self.weight, self.bias, residual, out,
            n_elements, x.shape[1], x.shape[2:].numel(), BLOCK=1024,
        )
        return out
