# cpu: N=1500
# family: binary_chain
import torch
import torch.nn as nn


class Model(nn.Module):
    """One step of gradient descent with momentum and weight decay; gives the new weights."""

    def __init__(self):
        super().__init__()

    def forward(self, weight, gradient, momentum):
        velocity = 0.9 * momentum + gradient + 0.01 * weight
        return weight - 0.05 * velocity


N = 25165824


def get_inputs():
    return [torch.randn(N), torch.randn(N), torch.randn(N)]


def get_init_inputs():
    return []
