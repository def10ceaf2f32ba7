# cpu: TOKENS=11, HIDDEN=70
# family: bias_activation
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Bias, GELU and a residual, as in the feed-forward part of a transformer."""

    def __init__(self, hidden):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(hidden))

    def forward(self, x, residual):
        return F.gelu(x + self.bias) + residual


TOKENS = 16384
HIDDEN = 3072


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN), torch.randn(TOKENS, HIDDEN)]


def get_init_inputs():
    return [HIDDEN]
