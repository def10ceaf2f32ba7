import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forward_kernel(logits, targets, losses, gradients, rows, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(logits + row * width + columns, mask, other=-float("inf"))
    target = tl.load(targets + row)
    shifted = x - tl.max(x, 0)
    total = tl.sum(tl.exp(shifted), 0)
    tl.store(losses + row, tl.log(total) - tl.sum(tl.where(columns == target, shifted, 0.0), 0))
    gradient = (tl.exp(shifted) / total - tl.where(columns == target, 1.0, 0.0)) / rows
    tl.store(gradients + row * width + columns, gradient, mask)


@triton.jit
def scale_kernel(gradients, above, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    tl.store(out + places, tl.load(gradients + places, mask) * tl.load(above), mask)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        rows, width = logits.shape
        losses, gradients = torch.empty(rows, device=logits.device), torch.empty_like(logits)
        block = triton.next_power_of_2(width)
        forward_kernel[(rows,)](logits, targets, losses, gradients, rows, width, BLOCK=block)
        ctx.save_for_backward(gradients)
        return losses.mean()

    @staticmethod
    def backward(ctx, above):
        (gradients,) = ctx.saved_tensors
        out = torch.empty_like(gradients)
        count = out.numel()
        scale_kernel[(triton.cdiv(count, 1024),)](gradients, above, out, count, BLOCK=1024)
        return out, None


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return Function.apply(logits, targets)
