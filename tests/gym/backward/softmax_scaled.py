import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x, weight, y, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    scaled = tl.load(x + row * width + columns, mask, other=0.0) * tl.load(weight + columns, mask, other=0.0)
    scaled = tl.where(mask, scaled, -float("inf"))
    e = tl.exp(scaled - tl.max(scaled, 0))
    tl.store(y + row * width + columns, e / tl.sum(e, 0), mask)


@triton.jit
def backward_kernel(x, weight, y, dy, dx, dw, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    p = tl.load(y + row * width + columns, mask, other=0.0)
    above = tl.load(dy + row * width + columns, mask, other=0.0)
    g = p * (above - tl.sum(p * above, 0))
    tl.store(dx + row * width + columns, g * tl.load(weight + columns, mask, other=0.0), mask)
    tl.store(dw + row * width + columns, g * tl.load(x + row * width + columns, mask, other=0.0), mask)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        rows, width = x.shape
        y = torch.empty_like(x)
        forward_kernel[(rows,)](x, weight, y, width, BLOCK=triton.next_power_of_2(width))
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, y = ctx.saved_tensors
        rows, width = x.shape
        dx, dw = torch.empty_like(x), torch.empty_like(x)
        backward_kernel[(rows,)](
            x, weight, y, dy.contiguous(), dx, dw, width, BLOCK=triton.next_power_of_2(width)
        )
        return dx, dw.sum(0)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x):
        return Function.apply(x, self.weight)
