# x: torch.randn(ROWS, STEPS) is (8192, 8192) float32
# arange, cumsum, div: one kernel.
# cumsum_kernel: n_cols = x.shape[-1], n_rows = x.numel() // n_cols. Each program scans whole rows in registers.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    # Each program scans whole rows in registers.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    offsets = row * n_cols + cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    running = tl.cumsum(x, axis=0)
    out = running / (1 + cols).to(tl.float32)
    tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        cumsum_kernel[(n_rows,)](x, out, n_cols, BLOCK=triton.next_power_of_2(n_cols), num_warps=16)
        return out
