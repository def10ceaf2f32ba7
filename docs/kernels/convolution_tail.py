# cpu: BATCH=2, CHANNELS=5, FILTERS=18, SIDE=9
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A convolution, a bias of its own, hard swish and a scale."""

    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(filters, 1, 1))

    def forward(self, x):
        return F.hardswish(self.conv(x) + self.bias) * 0.5


BATCH = 32
CHANNELS = 32
FILTERS = 64
SIDE = 112


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
