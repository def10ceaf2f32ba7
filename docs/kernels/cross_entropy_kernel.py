# logits: torch.randn(TOKENS, VOCABULARY) is (4096, 50257) float32
# labels: torch.randint(0, VOCABULARY, (TOKENS,)) is (4096,) int64
# cross_entropy: 2 kernels.
# cross_entropy_max_kernel: n_cols = logits.shape[-1], n_rows = logits.numel() // n_cols. Fuses neg, sub, log. Each program reduces one row in blocks, 1 pass.
# cross_entropy_sum_kernel: n_cols = cross_entropy_out.shape[-1]. Each program loads one row once and reduces in registers.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def cross_entropy_max_kernel(logits_ptr, labels_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    # Each program reduces one row in blocks, 1 pass.
    row = tl.program_id(0).to(tl.int64)
    top = float("-inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        offsets = row * n_cols + cols
        logits = tl.load(logits_ptr + offsets, mask=mask, other=float("-inf"))
        new_top = tl.maximum(top, tl.max(logits, axis=0))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(logits - shift), axis=0)
        top = new_top
    labels = tl.load(labels_ptr + row)
    logits = tl.load(logits_ptr + row * n_cols + labels)
    out = -(logits - top - tl.log(total))
    tl.store(out_ptr + row, out)


@triton.jit
def cross_entropy_sum_kernel(cross_entropy_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    # Each program loads one row once and reduces in registers.
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    cross_entropy = tl.load(cross_entropy_ptr + cols, mask=mask, other=0.0)
    out = tl.sum(cross_entropy, axis=0) / n_cols
    tl.store(out_ptr, out)


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        logits = logits.contiguous()
        labels = labels.contiguous()
        cross_entropy_out = torch.empty(
            (labels.shape[-1],), device=logits.device, dtype=logits.dtype,
        )
        n_cols = logits.shape[-1]
        n_rows = logits.numel() // n_cols
        cross_entropy_max_kernel[(n_rows,)](
            logits, labels, cross_entropy_out, n_cols, BLOCK=4096, num_warps=8,
        )
        out = torch.empty((), device=cross_entropy_out.device, dtype=cross_entropy_out.dtype)
        n_cols = cross_entropy_out.shape[-1]
        cross_entropy_sum_kernel[(1,)](
            cross_entropy_out, out, n_cols, BLOCK=triton.next_power_of_2(n_cols), num_warps=8,
        )
        return out
