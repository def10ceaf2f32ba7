# cpu: TOKENS=10, WIDTH=62
# family: gated
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """GELU of one half of a row times the other, biased."""

    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        gate, up = (x + self.bias).chunk(2, dim=-1)
        return F.gelu(gate) * up


TOKENS = 16384
WIDTH = 4096


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
