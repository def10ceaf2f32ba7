# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 64, 224, 224) float32
# max_pool2d, leaky_relu: one kernel.
# max_pool2d_leaky_relu_kernel: n_cols = out.shape[2:].numel(), n_rows = x.shape[:2].numel(). Each program computes one block of outputs and loops over the window.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def max_pool2d_leaky_relu_kernel(x_ptr, out_ptr, n_cols, H, W, inner, BLOCK: tl.constexpr):
    # Each program computes one block of outputs and loops over the window.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    acc = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    outer = cols // inner
    offset = cols % inner
    for kh in range(3):
        ih = outer * 2 + kh - 1
        for kw in range(3):
            iw = offset * 2 + kw - 1
            x_mask = mask & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
            offsets = (row * H + ih) * W + iw
            x = tl.load(x_ptr + offsets, mask=x_mask, other=float("-inf"))
            acc = tl.maximum(acc, x)
    out = tl.where(acc > 0, acc, acc * 0.1)
    tl.store(out_ptr + row * n_cols + cols, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out_height = (height - 1) // 2 + 1
        out_width = (width - 1) // 2 + 1
        out = torch.empty((*x.shape[:2], out_height, out_width), device=x.device, dtype=x.dtype)
        n_cols = out.shape[2:].numel()
        n_rows = x.shape[:2].numel()
        max_pool2d_leaky_relu_kernel[(n_rows, triton.cdiv(n_cols, 256))](
            x, out, n_cols, *x.shape[2:], out.shape[-1], BLOCK=256,
        )
        return out
