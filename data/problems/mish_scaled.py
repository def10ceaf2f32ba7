# cpu: BATCH=3, CHANNELS=5, LENGTH=37
# family: elementwise_chain
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Mish with a gain after it."""

    def __init__(self, gain):
        super().__init__()
        self.gain = gain

    def forward(self, x):
        return torch.tanh(F.softplus(x)) * x * self.gain


BATCH = 64
CHANNELS = 256
LENGTH = 2048
GAIN = 1.3


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [GAIN]
