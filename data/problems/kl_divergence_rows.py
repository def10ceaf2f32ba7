# cpu: ROWS=8, CLASSES=59
# family: loss
import torch
import torch.nn as nn


class Model(nn.Module):
    """Divergence of two distributions given by logits, one number a row."""

    def __init__(self):
        super().__init__()

    def forward(self, teacher, student):
        log_p = torch.log_softmax(teacher, dim=-1)
        log_q = torch.log_softmax(student, dim=-1)
        return torch.sum(log_p.exp() * (log_p - log_q), dim=-1)


ROWS = 8192
CLASSES = 4000


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randn(ROWS, CLASSES)]


def get_init_inputs():
    return []
