# cpu: TOKENS=13, DIM=38
# family: gated
import torch
import torch.nn as nn


class Model(nn.Module):
    """Turns the two halves of each row by an angle of their own."""

    def __init__(self):
        super().__init__()

    def forward(self, x, angle):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * torch.cos(angle) - b * torch.sin(angle), a * torch.sin(angle) + b * torch.cos(angle)), dim=-1)


TOKENS = 32768
DIM = 512


def get_inputs():
    return [torch.randn(TOKENS, DIM), torch.randn(TOKENS, DIM // 2)]


def get_init_inputs():
    return []
