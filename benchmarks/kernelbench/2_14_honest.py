"""Row sums of a product, by the weight's column sums."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(weight_ptr, sum_ptr, num_rows, num_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for first in range(0, num_rows, ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows[:, None] < num_rows) & (columns[None, :] < num_columns)
        weight = tl.load(weight_ptr + rows[:, None] * num_columns + columns[None, :], mask=inside, other=0.0)
        total += tl.sum(weight, axis=0)
    tl.store(sum_ptr + columns, total, mask=columns < num_columns)


@triton.jit
def row_dot_kernel(x_ptr, sum_ptr, y_ptr, num_columns, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, num_columns, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < num_columns
        x = tl.load(x_ptr + row * num_columns + columns, mask=inside, other=0.0)
        total += x * tl.load(sum_ptr + columns, mask=inside, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0) * factor)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = x.contiguous()
        hidden, inputs = self.weight.shape
        sums = torch.empty(inputs, device=x.device, dtype=torch.float32)
        y = torch.empty((x.shape[0], 1), device=x.device, dtype=x.dtype)
        column_sum_kernel[(triton.cdiv(inputs, 64),)](self.weight, sums, hidden, inputs, ROWS=32, COLUMNS=64)
        row_dot_kernel[(x.shape[0],)](x, sums, y, inputs, self.scaling_factor / 2, BLOCK=1024)
        return y
