# x: torch.randn(ROWS, COLS) is (16384, 4096) float32
# gate: torch.randn(ROWS, COLS) is (16384, 4096) float32
# scale: torch.randn(COLS) is (4096,) float32
# shift: torch.randn(COLS) is (4096,) float32
# mul, add, gelu, sigmoid: one kernel.
# gelu_sigmoid_kernel: n_cols = x.shape[-1], n_rows = x.numel() // n_cols. Fuses mul, gelu_tanh, add, sigmoid. Each program computes one block of a row.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu_sigmoid_kernel(
    x_ptr, scale_ptr, shift_ptr, gate_ptr, out_ptr, n_cols, BLOCK: tl.constexpr,
):
    # Each program computes one block of a row.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    offsets = row * n_cols + cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + cols, mask=mask, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=mask, other=0.0)
    total = x * scale + shift
    gelu = 0.5 * total * (
        1.0 + libdevice.tanh(0.7978845608028654 * (total + 0.044715 * total * total * total))
    )
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0)
    out = gelu * tl.sigmoid(gate)
    tl.store(out_ptr + offsets, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, gate, scale, shift):
        x = x.contiguous()
        gate = gate.contiguous()
        scale = scale.contiguous()
        shift = shift.contiguous()
        out = torch.empty_like(x)
        n_cols = x.shape[-1]
        n_rows = x.numel() // n_cols
        gelu_sigmoid_kernel[(n_rows, triton.cdiv(n_cols, 1024))](
            x, scale, shift, gate, out, n_cols, BLOCK=1024,
        )
        return out
