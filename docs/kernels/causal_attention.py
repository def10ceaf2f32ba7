# cpu: BATCH=2, HEADS=2, TOKENS=19, WIDTH=16
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Causal attention of several heads."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


BATCH = 8
HEADS = 16
TOKENS = 2048
WIDTH = 64


def get_inputs():
    return [
        torch.randn(BATCH, HEADS, TOKENS, WIDTH),
        torch.randn(BATCH, HEADS, TOKENS, WIDTH),
        torch.randn(BATCH, HEADS, TOKENS, WIDTH),
    ]


def get_init_inputs():
    return []
