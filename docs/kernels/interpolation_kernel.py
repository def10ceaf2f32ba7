# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (16, 128, 64, 64) float32
# finer: torch.randn(BATCH, CHANNELS, 2 * SIDE, 2 * SIDE) is (16, 128, 128, 128) float32
# interpolate, add: one kernel.
# interpolate_kernel: n_cols = finer.shape[2:].numel(), n_rows = x.shape[:2].numel(). Fuses add, lerp, minimum, maximum, sub, mul. Each program computes one block of a row.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def interpolate_kernel(x_ptr, finer_ptr, out_ptr, n_cols, H, W, inner, BLOCK: tl.constexpr):
    # Each program computes one block of a row.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    offset = cols % inner
    upper = tl.maximum((offset.to(tl.float32) + 0.5) * (1.0 / 2) - 0.5, 0.0)
    lower = tl.minimum(upper.to(tl.int64), W - 1)
    outer = cols // inner
    upper2 = tl.maximum((outer.to(tl.float32) + 0.5) * (1.0 / 2) - 0.5, 0.0)
    lower2 = tl.minimum(upper2.to(tl.int64), H - 1)
    x = tl.load(x_ptr + (row * H + lower2) * W + lower, mask=mask, other=0.0)
    lower3 = tl.minimum(lower2 + 1, H - 1)
    x2 = tl.load(x_ptr + (row * H + lower3) * W + lower, mask=mask, other=0.0)
    diff = upper2 - lower2.to(tl.float32)
    lerp = x + diff * (x2 - x)
    lower4 = tl.minimum(lower + 1, W - 1)
    x3 = tl.load(x_ptr + (row * H + lower2) * W + lower4, mask=mask, other=0.0)
    x4 = tl.load(x_ptr + (row * H + lower3) * W + lower4, mask=mask, other=0.0)
    lerp2 = lerp + (upper - lower.to(tl.float32)) * (x3 + diff * (x4 - x3) - lerp)
    finer_offsets = row * n_cols + cols
    finer = tl.load(finer_ptr + finer_offsets, mask=mask, other=0.0)
    out = lerp2 + finer
    tl.store(out_ptr + finer_offsets, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, finer):
        x = x.contiguous()
        finer = finer.contiguous()
        out = torch.empty((*x.shape[:2], *finer.shape[2:]), device=x.device, dtype=x.dtype)
        n_cols = finer.shape[2:].numel()
        n_rows = x.shape[:2].numel()
        interpolate_kernel[(n_rows, triton.cdiv(n_cols, 1024))](
            x, finer, out, n_cols, *x.shape[2:], finer.shape[-1], BLOCK=1024,
        )
        return out
