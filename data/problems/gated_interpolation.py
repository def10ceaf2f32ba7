# cpu: ROWS=9, COLS=61
# family: binary_chain
import torch
import torch.nn as nn


class Model(nn.Module):
    """Goes from one tensor to another as far as a gate says."""

    def __init__(self):
        super().__init__()

    def forward(self, start, end, gate):
        share = torch.sigmoid(gate)
        return start + share * (end - start)


ROWS = 8192
COLS = 4096


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
