# scores: torch.randn(BATCH, CLASSES, POINTS) is (16, 128, 65536) float32
# max: one kernel.
# max_kernel: n_rows = scores.shape[1], n_cols = out.numel(). Each program reduces a block of columns in blocks, 1 pass.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_kernel(
    scores_ptr, out_ptr, out2_ptr, n_rows, n_cols, inner, BLOCK: tl.constexpr, COLS: tl.constexpr,
):
    # Each program reduces a block of columns in blocks, 1 pass.
    cols = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    best = tl.full((BLOCK, COLS), float("-inf"), dtype=tl.float32)
    best_at = tl.zeros((BLOCK, COLS), dtype=tl.int64)
    offset = cols % inner
    outer = cols // inner
    for start in range(0, n_rows, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        offsets = (outer[None, :] * n_rows + rows[:, None]) * inner + offset[None, :]
        scores = tl.load(scores_ptr + offsets, mask=mask, other=float("-inf"))
        better = scores > best
        best_at = tl.where(better, rows[:, None], best_at)
        best = tl.where(better, scores, best)
    top = tl.max(best, axis=0, keep_dims=True)
    argmax = tl.min(tl.where(best == top, best_at, n_rows), axis=0, keep_dims=True)
    tl.store(out_ptr + cols[None, :], top, mask=cols[None, :] < n_cols)
    tl.store(out2_ptr + cols[None, :], argmax, mask=cols[None, :] < n_cols)


class ModelNew(nn.Module):
    def forward(self, scores):
        scores = scores.contiguous()
        out = torch.empty(
            (scores.shape[0], scores.shape[-1]), device=scores.device, dtype=scores.dtype,
        )
        out_2 = torch.empty(
            (scores.shape[0], scores.shape[-1]), device=scores.device, dtype=torch.int64,
        )
        n_rows = scores.shape[1]
        n_cols = out.numel()
        max_kernel[(triton.cdiv(n_cols, 64),)](
            scores, out, out_2, n_rows, n_cols, scores.shape[-1], BLOCK=32, COLS=64,
        )
        return (out, out_2)
