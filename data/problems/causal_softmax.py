# cpu: HEADS=2, TOKENS=13
# family: softmax
import torch
import torch.nn as nn


class Model(nn.Module):
    """Softmax over the positions that each token may look at."""

    def __init__(self):
        super().__init__()

    def forward(self, scores):
        tokens = scores.shape[-1]
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=scores.device).triu(1)
        return torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)


HEADS = 32
TOKENS = 1024


def get_inputs():
    return [torch.randn(HEADS, TOKENS, TOKENS)]


def get_init_inputs():
    return []
