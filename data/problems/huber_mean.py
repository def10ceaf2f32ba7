# cpu: ROWS=10, COLS=73
# family: loss
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Huber loss with its bend at 0.7, averaged over everything."""

    def __init__(self):
        super().__init__()

    def forward(self, prediction, target):
        return F.huber_loss(prediction, target, delta=0.7)


ROWS = 16384
COLS = 2048


def get_inputs():
    return [torch.randn(ROWS, COLS), (torch.rand(1) + 0.5) * torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
