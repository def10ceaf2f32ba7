# problem: scale_shift
# at most: 0.2
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, w_ptr, b_ptr, out_ptr, m, n, BLOCK: tl.constexpr):
    for i in range(m):
        for j in range(0, n, BLOCK):
            o = j + tl.arange(0, BLOCK)
            v = tl.load(x_ptr + i * n + o, mask=o < n) * tl.load(w_ptr + o, mask=o < n) + tl.load(
                b_ptr + o, mask=o < n
            )
            tl.store(out_ptr + i * n + o, tl.maximum(v, 0.0), mask=o < n)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        out = torch.empty_like(x)
        k[(1,)](x, self.weight, self.bias, out, *x.shape, BLOCK=16)
        return out
