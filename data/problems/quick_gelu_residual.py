# cpu: ROWS=7, COLS=75
# family: elementwise_chain
import torch
import torch.nn as nn


class Model(nn.Module):
    """Sigmoid form of GELU, damped and added to its input."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x + 0.5 * (x * torch.sigmoid(1.702 * x))


ROWS = 16384
COLS = 4096


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
