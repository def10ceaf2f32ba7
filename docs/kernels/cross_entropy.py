# cpu: TOKENS=11, VOCABULARY=9001
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Mean cross entropy of tokens over a large vocabulary."""

    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels)


TOKENS = 4096
VOCABULARY = 50257


def get_inputs():
    return [torch.randn(TOKENS, VOCABULARY), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return []
