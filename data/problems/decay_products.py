# cpu: ROWS=10, COLS=49
# family: cumsum
import torch
import torch.nn as nn


class Model(nn.Module):
    """Running product of gates close to one, as in a linear recurrence."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.cumprod(1.0 - 0.01 * torch.sigmoid(x), dim=1) * 3.0


ROWS = 16384
COLS = 1000


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
