# cpu: ROWS=9, COLS=77
import torch
import torch.nn as nn


class Model(nn.Module):
    """Mean absolute error of each row, relative to the row's largest target."""

    def forward(self, x, target):
        error = (x - target).abs().mean(dim=-1)
        return error / (target.abs().amax(dim=-1) + 1e-6)


ROWS = 16384
COLS = 4096


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
