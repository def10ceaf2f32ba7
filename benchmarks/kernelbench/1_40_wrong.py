"""LayerNorm over all but the first dimension, wrong: the variance is taken about zero."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, num_columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * num_columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, num_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row + columns, mask=columns < num_columns, other=0.0)
    mean = tl.sum(total, axis=0) / num_columns
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, num_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + columns, mask=columns < num_columns, other=0.0)
        centred = x
        squares += centred * centred
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / num_columns + eps)
    for start in range(0, num_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < num_columns
        x = tl.load(x_ptr + row + columns, mask=inside, other=0.0)
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
        bias = tl.load(bias_ptr + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row + columns, (x - mean) * scale * weight + bias, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        columns = x.numel() // x.shape[0]
        layer_norm_kernel[(x.shape[0],)](x, self.ln.weight, self.ln.bias, y, columns, self.ln.eps, BLOCK=1024)
        return y
