"""Matrix times scalar, wrong: adds the scalar."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(a_ptr, y_ptr, s, num_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < num_elements
    tl.store(y_ptr + offsets, tl.load(a_ptr + offsets, mask=inside) + s, mask=inside)


class ModelNew(nn.Module):
    def forward(self, A, s):
        A = A.contiguous()
        y = torch.empty_like(A)
        scale_kernel[(triton.cdiv(A.numel(), 1024),)](A, y, s, A.numel(), BLOCK=1024)
        return y
