# cpu: N=1234
# family: elementwise_chain
import torch
import torch.nn as nn


class Model(nn.Module):
    """Hyperbolic tangent of a cubic polynomial."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        cubic = x + 0.044715 * x * x * x
        return 0.5 * x * (1.0 + torch.tanh(0.79788456 * cubic))


N = 33554432


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
