# x: torch.randn(TOKENS, WIDTH) is (32768, 2048) float32
# residual: torch.randn(TOKENS, WIDTH) is (32768, 2048) float32
# add, layer_norm, gelu: one kernel.
# layer_norm_gelu_kernel: n_cols = x.shape[-1], n_rows = x.numel() // n_cols. Fuses add, square, sub, true_divide, gelu_erf, mul, rsqrt. Each program loads one row once and reduces in registers.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def layer_norm_gelu_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr,
):
    # Each program loads one row once and reduces in registers.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    offsets = row * n_cols + cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0)
    total = x + residual
    mean = tl.sum(total, axis=0) / n_cols
    centered = total - mean
    var = tl.sum(tl.where(mask, centered * centered, 0.0), axis=0) / n_cols
    rstd = tl.rsqrt(var + eps)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0)
    total2 = centered * rstd * weight + bias
    out = 0.5 * total2 * (1.0 + tl.erf(0.7071067811865476 * total2))
    tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, residual):
        x = x.contiguous()
        residual = residual.contiguous()
        out = torch.empty_like(x)
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        layer_norm_gelu_kernel[(n_rows,)](
            x, residual, self.norm.weight, self.norm.bias, out, n_cols, self.norm.eps,
            BLOCK=triton.next_power_of_2(n_cols),
        )
        return out
