# cpu: TOKENS=37, WIDTH=45, HIDDEN=51
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A linear layer with int8 weights and a scale for each output."""

    def __init__(self, width, hidden):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (hidden, width), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(hidden) / 1000)
        self.bias = nn.Parameter(torch.randn(hidden))

    def forward(self, x):
        weight = self.weight.to(x.dtype) * self.scale[:, None]
        return F.linear(x, weight, self.bias)


TOKENS = 4096
WIDTH = 1024
HIDDEN = 4096


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
