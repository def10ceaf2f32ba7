# cpu: ROWS=12, LABELS=47
# family: loss
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Binary cross entropy of logits against soft labels, averaged over each row."""

    def __init__(self):
        super().__init__()

    def forward(self, logits, soft):
        target = torch.sigmoid(soft)
        return (F.softplus(logits) - logits * target).mean(dim=1)


ROWS = 16384
LABELS = 2000


def get_inputs():
    return [torch.randn(ROWS, LABELS), torch.randn(ROWS, LABELS)]


def get_init_inputs():
    return []
