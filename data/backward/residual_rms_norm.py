# cpu: ROWS=7, COLS=75
# family: rms_norm
# backward: inputs, parameters
import torch
import torch.nn as nn

ROWS = 8192
COLS = 4096


class Model(nn.Module):
    """The sum of two tensors, and its root-mean-square norm."""

    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x, residual):
        total = x + residual
        scale = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)
        return total * scale * self.weight, total


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
