# cpu: BATCH=2, CHANNELS=6, LENGTH=19
# family: group_norm
# backward: inputs, parameters
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 128
LENGTH = 4096


class Model(nn.Module):
    """Group normalisation in two groups."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return F.group_norm(x, 2, self.weight, self.bias)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS]
