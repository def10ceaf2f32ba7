# cpu: ROWS=7, CLASSES=75
# family: loss
# backward: inputs
import torch
import torch.nn as nn

ROWS = 4096
CLASSES = 8192


class Model(nn.Module):
    """The divergence of each row of a student's logits from a teacher's."""

    def forward(self, student, teacher):
        log_p, log_q = torch.log_softmax(teacher, -1), torch.log_softmax(student, -1)
        return (log_p.exp() * (log_p - log_q)).sum(-1)


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randn(ROWS, CLASSES)]


def get_init_inputs():
    return []
