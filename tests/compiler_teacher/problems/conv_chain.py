# cpu: BATCH=2, CHANNELS=3, OUT=5, SIDE=9
# family: test
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(out, 1, 1))

    def forward(self, x):
        return nn.functional.gelu(self.conv(x)) * self.scale + 0.5


BATCH = 16
CHANNELS = 24
OUT = 48
SIDE = 56


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]
