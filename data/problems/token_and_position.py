# cpu: TOKENS=21, VOCAB=30, HIDDEN=39
# family: embedding
import torch
import torch.nn as nn


class Model(nn.Module):
    """Token embeddings, scaled, plus the embedding of their position."""

    def __init__(self, vocab, tokens, hidden):
        super().__init__()
        self.token = nn.Parameter(torch.randn(vocab, hidden))
        self.position = nn.Parameter(torch.randn(tokens, hidden))

    def forward(self, ids):
        return 8.0 * self.token[ids] + self.position


TOKENS = 16384
VOCAB = 32000
HIDDEN = 1024


def get_inputs():
    return [torch.randint(0, VOCAB, (TOKENS,))]


def get_init_inputs():
    return [VOCAB, TOKENS, HIDDEN]
