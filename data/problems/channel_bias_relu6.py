# cpu: BATCH=2, CHANNELS=5, HEIGHT=9, WIDTH=11
# family: bias_activation
import torch
import torch.nn as nn


class Model(nn.Module):
    """A bias and a gain for each channel of an image, cut to [0, 6]."""

    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return torch.clamp(x * self.gain + self.bias, 0.0, 6.0)


BATCH = 32
CHANNELS = 128
HEIGHT = 96
WIDTH = 96


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
