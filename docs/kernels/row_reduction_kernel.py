# x: torch.randn(ROWS, COLS) is (16384, 4096) float32
# target: torch.randn(ROWS, COLS) is (16384, 4096) float32
# sub, abs, mean, amax, add, div: one kernel.
# abs_mean_amax_kernel: n_cols = x.shape[-1], n_rows = x.numel() // n_cols. Fuses abs, sub, true_divide, add. Each program loads one row once and reduces in registers.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def abs_mean_amax_kernel(x_ptr, target_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    # Each program loads one row once and reduces in registers.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    offsets = row * n_cols + cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0)
    top = tl.max(tl.where(mask, tl.abs(target), float("-inf")), axis=0)
    mean = tl.sum(tl.abs(x - target), axis=0) / n_cols
    out = mean / (top + 1e-06)
    tl.store(out_ptr + row, out)


class ModelNew(nn.Module):
    def forward(self, x, target):
        x = x.contiguous()
        target = target.contiguous()
        out = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        abs_mean_amax_kernel[(n_rows,)](
            x, target, out, n_cols, BLOCK=triton.next_power_of_2(n_cols), num_warps=8,
        )
        return out
