# cpu: ROWS=17, INNER=33, COLS=47
# family: matmul_epilogue
# backward: inputs, parameters
import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 4096
INNER = 1024
COLS = 4096


class Model(nn.Module):
    """A linear layer and a GELU."""

    def __init__(self, inner, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cols, inner) / inner**0.5)
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x):
        return F.gelu(F.linear(x, self.weight, self.bias))


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return [INNER, COLS]
