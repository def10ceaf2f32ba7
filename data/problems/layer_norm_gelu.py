# cpu: TOKENS=9, HIDDEN=91
# family: layer_norm
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Layer norm with learned weight and bias, then GELU."""

    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.bias = nn.Parameter(torch.randn(hidden))

    def forward(self, x):
        return F.gelu(F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, 1e-6))


TOKENS = 16384
HIDDEN = 2560


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN)]


def get_init_inputs():
    return [HIDDEN]
