"""Sum over the second dimension, wrong: the last row is left out."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, y_ptr, num_rows, num_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    batch = tl.program_id(0).to(tl.int64)
    result = tl.full((COLUMNS,), 0.0, dtype=tl.float32)
    for first in range(0, num_rows, ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows[:, None] < num_rows - 1) & (columns[None, :] < num_columns)
        offsets = batch * num_rows * num_columns + rows[:, None] * num_columns + columns[None, :]
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
        result = result + tl.sum(x, axis=0)
    tl.store(y_ptr + batch * num_columns + columns, result, mask=columns < num_columns)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        assert dim == 1

    def forward(self, x):
        x = x.contiguous()
        batch, rows, columns = x.shape
        y = torch.empty((batch, 1, columns), device=x.device, dtype=x.dtype)
        sum_kernel[(batch, triton.cdiv(columns, 64))](x, y, rows, columns, ROWS=32, COLUMNS=64)
        return y
