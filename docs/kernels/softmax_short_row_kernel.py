# x: torch.randn(ROWS, COLS) is (131072, 256) float32
# temperature: torch.rand(1) + 0.5 is (1,) float32
# div, softmax: one kernel.
# softmax_kernel: n_cols = x.shape[-1], n_rows = x.numel() // n_cols. Fuses true_divide, exp, sub. Each program loads a block of rows once and reduces in registers.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    x_ptr, temperature_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):
    # Each program loads a block of rows once and reduces in registers.
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * n_cols + cols[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    temperature = tl.load(temperature_ptr)
    inside = tl.where(cols[None, :] < n_cols, x / temperature, float("-inf"))
    top = tl.max(inside, axis=1, keep_dims=True)
    exps = tl.exp(inside - top)
    out = exps / tl.sum(exps, axis=1, keep_dims=True)
    tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, temperature):
        x = x.contiguous()
        temperature = temperature.contiguous()
        out = torch.empty_like(x)
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        softmax_kernel[(triton.cdiv(n_rows, 16),)](
            x, temperature, out, n_rows, n_cols, BLOCK=triton.next_power_of_2(n_cols), ROWS=16,
            num_warps=8,
        )
        return out
