# cpu: TOKENS=36, HIDDEN=33, INNER=41
# family: matmul_epilogue
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Two projections of one input, one gating the other."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(hidden, inner) * hidden**-0.5)
        self.up = nn.Parameter(torch.randn(hidden, inner) * hidden**-0.5)

    def forward(self, x):
        return F.silu(x @ self.gate) * (x @ self.up)


TOKENS = 8192
HIDDEN = 128
INNER = 2048


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN)]


def get_init_inputs():
    return [HIDDEN, INNER]
