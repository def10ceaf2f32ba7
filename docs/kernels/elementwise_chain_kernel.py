# x: torch.randn(ROWS, COLS) is (16384, 4096) float32
# gate: torch.randn(ROWS, COLS) is (16384, 4096) float32
# scale: torch.randn(COLS) is (4096,) float32
# shift: torch.randn(COLS) is (4096,) float32
# mul, add, gelu, sigmoid: one kernel.
# gelu_sigmoid_kernel: n_elements = x.numel(). Fuses mul, gelu_tanh, add, sigmoid. Each program computes one block of elements.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu_sigmoid_kernel(
    x_ptr, scale_ptr, shift_ptr, gate_ptr, out_ptr, n_elements, n_cols, BLOCK: tl.constexpr,
):
    # Each program computes one block of elements.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    col = i % n_cols
    scale = tl.load(scale_ptr + col, mask=mask, other=0.0)
    shift = tl.load(shift_ptr + col, mask=mask, other=0.0)
    total = x * scale + shift
    gelu = 0.5 * total * (
        1.0 + libdevice.tanh(0.7978845608028654 * (total + 0.044715 * total * total * total))
    )
    gate = tl.load(gate_ptr + i, mask=mask, other=0.0)
    out = gelu * tl.sigmoid(gate)
    tl.store(out_ptr + i, out, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, gate, scale, shift):
        x = x.contiguous()
        gate = gate.contiguous()
        scale = scale.contiguous()
        shift = shift.contiguous()
        out = torch.empty_like(x)
        n_elements = x.numel()
        gelu_sigmoid_kernel[(triton.cdiv(n_elements, 1024),)](
            x, scale, shift, gate, out, n_elements, x.shape[-1], BLOCK=1024,
        )
        return out
