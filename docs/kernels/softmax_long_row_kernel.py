# x: torch.randn(ROWS, COLS) is (2048, 131072) float32
# softmax: one kernel.
# softmax_kernel: n_cols = x.shape[-1], n_rows = x.numel() // n_cols. Fuses true_divide, exp, sub. Each program reduces one row in blocks, 2 passes.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    # Each program reduces one row in blocks, 2 passes.
    row = tl.program_id(0).to(tl.int64)
    top = float("-inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=float("-inf"))
        new_top = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
        top = new_top
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        offsets = row * n_cols + cols
        x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf"))
        out = tl.exp(x - top) / total
        tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        softmax_kernel[(n_rows,)](x, out, n_cols, BLOCK=4096, num_warps=8)
        return out
