import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x, weight, y, scales, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    v = tl.load(x + row * width + columns, mask, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, 0) / width + 1e-6)
    tl.store(scales + row, scale)
    tl.store(y + row * width + columns, v * scale * tl.load(weight + columns, mask), mask)


@triton.jit
def backward_kernel(x, weight, scales, dy, dx, dw, rows, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    w = tl.load(weight + columns, mask, other=0.0)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        v = tl.load(x + row * width + columns, mask, other=0.0)
        above = tl.load(dy + row * width + columns, mask, other=0.0)
        scale = tl.load(scales + row)
        g = above * w
        along = tl.sum(g * v, 0) / width
        tl.store(dx + row * width + columns, scale * (g - v * scale * scale * along), mask)
        total += above * v * scale
    tl.store(dw + tl.program_id(0) * width + columns, total, mask)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        rows, width = x.shape
        y, scales = torch.empty_like(x), torch.empty(rows, device=x.device)
        forward_kernel[(rows,)](x, weight, y, scales, width, BLOCK=triton.next_power_of_2(width))
        ctx.save_for_backward(x, weight, scales)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, scales = ctx.saved_tensors
        rows, width = x.shape
        programs = min(rows, 64)
        dx, dw = torch.empty_like(x), torch.empty((programs, width), device=x.device)
        backward_kernel[(programs,)](
            x, weight, scales, dy.contiguous(), dx, dw, rows, width, BLOCK=triton.next_power_of_2(width)
        )
        return dx, dw.sum(0)


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x):
        return Function.apply(x, self.weight)
