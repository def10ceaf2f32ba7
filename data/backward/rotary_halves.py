# cpu: BATCH=2, HEADS=3, LENGTH=7, WIDTH=8
# family: rotary
# backward: x
import torch
import torch.nn as nn

BATCH = 4
HEADS = 16
LENGTH = 2048
WIDTH = 64


class Model(nn.Module):
    """Rotary positions of halves."""

    def forward(self, x, cos, sin):
        one, other = x.chunk(2, dim=-1)
        return torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1)


def get_inputs():
    rates = 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    angles = torch.arange(LENGTH)[:, None] * rates
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH), angles.cos(), angles.sin()]


def get_init_inputs():
    return []
