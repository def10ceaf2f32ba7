"""Rows over their mean absolute value, wrong: over the sum instead of the mean."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def l1_norm_kernel(x_ptr, y_ptr, num_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * num_columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, num_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + columns, mask=columns < num_columns, other=0.0)
        total += tl.abs(x)
    norm = tl.sum(total, axis=0)
    for start in range(0, num_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < num_columns
        x = tl.load(x_ptr + row + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row + columns, x / norm, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        l1_norm_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
        return y
