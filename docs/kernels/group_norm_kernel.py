# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 128, 128, 128) float32
# group_norm, silu: one kernel.
# group_norm_silu_kernel: n_cols = size2 * x.shape[2:].numel(), n_rows = x.shape[0] * self.norm.num_groups. Fuses silu, add, mul, sub, true_divide, rsqrt. Each program reduces one row in blocks, 2 passes.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def group_norm_silu_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, n_cols, num_groups, D, inner, eps, BLOCK: tl.constexpr,
):
    # Each program reduces one row in blocks, 2 passes.
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    squares = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
        added = tl.sum(x, axis=0)
        number = tl.minimum(n_cols - start, BLOCK)
        block_mean = added / number
        apart = tl.where(mask, x - block_mean, 0.0)
        shift = block_mean - total / tl.maximum(start, 1)
        squares += tl.sum(apart * apart, axis=0) + shift * shift * number * (
            start / (start + number)
        )
        total += added
    mean = total / n_cols
    var = squares / n_cols
    rstd = tl.rsqrt(var + eps)
    group = row % num_groups
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        offsets = row * n_cols + cols
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        centered = x - mean
        outer = cols // inner
        weight_offsets = group * D + outer
        weight = tl.load(weight_ptr + weight_offsets, mask=mask, other=0.0)
        bias = tl.load(bias_ptr + weight_offsets, mask=mask, other=0.0)
        total2 = centered * rstd * weight + bias
        out = total2 * tl.sigmoid(total2)
        tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        size2 = x.shape[1] // self.norm.num_groups
        n_cols = size2 * x.shape[2:].numel()
        n_rows = x.shape[0] * self.norm.num_groups
        group_norm_silu_kernel[(n_rows,)](
            x, self.norm.weight, self.norm.bias, out, n_cols, self.norm.num_groups, size2,
            x.shape[2:].numel(), self.norm.eps, BLOCK=4096, num_warps=8,
        )
        return out
