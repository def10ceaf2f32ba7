# problem: poly_heavy
# at most: 150
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def heavy(a, b):
    s = a + b
    for _ in tl.static_range(200):
        s = s * 0.999 + 0.001
    return s


@triton.jit
def k(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + o, mask=o < n)
    r = tl.reduce(tl.join(v, v * 0), 1, heavy)
    tl.store(out_ptr + o, r, mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
