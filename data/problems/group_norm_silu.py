# cpu: BATCH=2, CHANNELS=6, HEIGHT=5, WIDTH=7, GROUPS=3
# family: group_norm
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Group norm with a weight a channel, then SiLU."""

    def __init__(self, channels, groups):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return F.silu(F.group_norm(x, self.groups, self.weight, self.bias))


BATCH = 64
CHANNELS = 256
HEIGHT = 32
WIDTH = 32
GROUPS = 32


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
