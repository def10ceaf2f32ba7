# cpu: TOKENS=13, EXPERTS=19, K=3
import torch
import torch.nn as nn


class Model(nn.Module):
    """The k experts of each token and their shares."""

    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, logits):
        top = torch.topk(logits, self.k, dim=-1)
        return torch.softmax(top.values, dim=-1), top.indices


TOKENS = 65536
EXPERTS = 64
K = 4


def get_inputs():
    return [torch.randn(TOKENS, EXPERTS)]


def get_init_inputs():
    return [K]
