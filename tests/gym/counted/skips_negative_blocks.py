# problem: relu_poly
# at most: 125
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.maximum(tl.load(x_ptr + o, mask=o < n, other=0.0), 0.0)
    y = v
    if tl.max(v) > 0:
        for _ in range(200):
            y = y * 0.99 + v
    tl.store(out_ptr + o, y, mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)
        return out
