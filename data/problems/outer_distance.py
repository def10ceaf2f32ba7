# cpu: N=13, M=47
# family: outer
import torch
import torch.nn as nn


class Model(nn.Module):
    """How far apart every pair of two sets of numbers is, as a Gaussian."""

    def __init__(self):
        super().__init__()

    def forward(self, left, right):
        gap = left[:, None] - right[None, :]
        return torch.exp(-0.5 * gap * gap / 0.36)


N = 8192
M = 6000


def get_inputs():
    return [torch.randn(N), torch.randn(M)]


def get_init_inputs():
    return []
