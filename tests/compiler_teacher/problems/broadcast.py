# cpu: ROWS=7, COLS=75
# family: test
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, shift):
        return torch.sigmoid(x + shift) * x


ROWS = 4096
COLS = 1024


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(COLS)]


def get_init_inputs():
    return []
