# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (16, 128, 64, 64) float32
# finer: torch.randn(BATCH, CHANNELS, 2 * SIDE, 2 * SIDE) is (16, 128, 128, 128) float32
# interpolate, add: one kernel.
# interpolate_kernel: n_elements = finer.numel(). Fuses add, lerp, minimum, maximum, sub, mul. Each program computes one block of elements.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def interpolate_kernel(x_ptr, finer_ptr, out_ptr, n_elements, H, W, H2, W2, BLOCK: tl.constexpr):
    # Each program computes one block of elements.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    w = i % W
    upper = tl.maximum((w.to(tl.float32) + 0.5) * (1.0 / 2) - 0.5, 0.0)
    lower = tl.minimum(upper.to(tl.int64), W2 - 1)
    h = i // W % H
    upper2 = tl.maximum((h.to(tl.float32) + 0.5) * (1.0 / 2) - 0.5, 0.0)
    lower2 = tl.minimum(upper2.to(tl.int64), H2 - 1)
    bc = i // W // H
    x = tl.load(x_ptr + (bc * H2 + lower2) * W2 + lower, mask=mask, other=0.0)
    lower3 = tl.minimum(lower2 + 1, H2 - 1)
    x2 = tl.load(x_ptr + (bc * H2 + lower3) * W2 + lower, mask=mask, other=0.0)
    diff = upper2 - lower2.to(tl.float32)
    lerp = x + diff * (x2 - x)
    lower4 = tl.minimum(lower + 1, W2 - 1)
    x3 = tl.load(x_ptr + (bc * H2 + lower2) * W2 + lower4, mask=mask, other=0.0)
    x4 = tl.load(x_ptr + (bc * H2 + lower3) * W2 + lower4, mask=mask, other=0.0)
    lerp2 = lerp + (upper - lower.to(tl.float32)) * (x3 + diff * (x4 - x3) - lerp)
    finer = tl.load(finer_ptr + i, mask=mask, other=0.0)
    out = lerp2 + finer
    tl.store(out_ptr + i, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, finer):
        x = x.contiguous()
        finer = finer.contiguous()
        out = torch.empty((*x.shape[:2], *finer.shape[2:]), device=x.device, dtype=x.dtype)
        n_elements = finer.numel()
        interpolate_kernel[(triton.cdiv(n_elements, 1024),)](
            x, finer, out, n_elements, *finer.shape[2:], *x.shape[2:], BLOCK=1024,
        )
        return out
