# cpu: BATCH=3, TOKENS=13, WORDS=37, WIDTH=45
import torch
import torch.nn as nn


class Model(nn.Module):
    """Embeddings of tokens plus embeddings of their positions, scaled."""

    def __init__(self, words, tokens, width):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(tokens, width)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.words(tokens) * self.words.embedding_dim**0.5 + self.positions(positions)


BATCH = 16
TOKENS = 2048
WORDS = 32000
WIDTH = 1024


def get_inputs():
    return [torch.randint(0, WORDS, (BATCH, TOKENS))]


def get_init_inputs():
    return [WORDS, TOKENS, WIDTH]
