# problem: linear_gelu
# at most: 0.9
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + o, mask=o < n)
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    t = 2 / (1 + tl.exp(-2 * u)) - 1
    tl.store(out_ptr + o, 0.5 * v * (1 + t), mask=o < n)


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        h = torch.addbmm(
            self.linear.bias[None, :].expand(x.shape[0], -1), x[None], self.linear.weight.t()[None]
        )
        out = torch.empty_like(h)
        gelu[(triton.cdiv(h.numel(), 256),)](h, out, h.numel(), BLOCK=256)
        return out
