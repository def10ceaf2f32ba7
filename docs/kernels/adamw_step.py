# cpu: PARAMETERS=1077
import torch
import torch.nn as nn


class Model(nn.Module):
    """A step of AdamW: the new weights and both moments."""

    def __init__(self, rate, decay):
        super().__init__()
        self.rate, self.decay = rate, decay

    def forward(self, weight, grad, average, square, step):
        weight = weight * (1 - self.rate * self.decay)
        average = torch.lerp(average, grad, 0.1)
        square = square * 0.999 + grad * grad * 0.001
        root = (square / (1 - 0.999**step)).sqrt() + 1e-8
        return weight - self.rate * average / (1 - 0.9**step) / root, average, square


PARAMETERS = 67108864
RATE = 0.001
DECAY = 0.01


def get_inputs():
    return [
        torch.randn(PARAMETERS),
        torch.randn(PARAMETERS),
        torch.randn(PARAMETERS),
        torch.rand(PARAMETERS),
        torch.full((1,), 10.0),
    ]


def get_init_inputs():
    return [RATE, DECAY]
