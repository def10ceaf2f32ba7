# problem: softmax_rows
# at most: 0.1
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + o, mask=o < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v))
    tl.store(out_ptr + o, e / tl.sum(e), mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        for i in range(x.shape[0]):
            row[(1,)](x[i], out[i], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
