"""An example for `dojo judge`: data/problems/quick_gelu_residual.py in one pass over memory."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quick_gelu_residual(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask)
    gate = 1.0 / (1.0 + tl.exp(-1.702 * x))
    tl.store(out_ptr + offsets, x + 0.5 * (x * gate), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        quick_gelu_residual[grid](x, out, x.numel(), BLOCK=1024)
        return out
