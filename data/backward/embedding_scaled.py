# cpu: VOCABULARY=77, WIDTH=33, TOKENS=21
# family: embedding
# backward: inputs
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY = 32000
WIDTH = 1024
TOKENS = 8192


class Model(nn.Module):
    """Rows of a table, doubled."""

    def forward(self, table, tokens):
        return 2.0 * F.embedding(tokens, table)


def get_inputs():
    return [torch.randn(VOCABULARY, WIDTH), torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs():
    return []
