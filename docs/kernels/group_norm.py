# cpu: BATCH=2, CHANNELS=6, GROUPS=3, SIDE=7
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Group norm of an image, then SiLU."""

    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return F.silu(self.norm(x))


BATCH = 32
CHANNELS = 128
GROUPS = 32
SIDE = 128


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [GROUPS, CHANNELS]
