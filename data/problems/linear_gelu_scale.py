# cpu: BATCH=37, IN_FEATURES=45, OUT_FEATURES=51
# family: matmul_epilogue
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A linear layer, GELU and a gain."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return 1.5 * F.gelu(self.linear(x))


BATCH = 8192
IN_FEATURES = 128
OUT_FEATURES = 4096


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
