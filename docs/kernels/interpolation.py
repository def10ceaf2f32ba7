# cpu: BATCH=2, CHANNELS=3, SIDE=7
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """An image of twice the size, bilinear, and a sum with a finer one."""

    def forward(self, x, finer):
        return F.interpolate(x, scale_factor=2, mode="bilinear") + finer


BATCH = 16
CHANNELS = 128
SIDE = 64


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE), torch.randn(BATCH, CHANNELS, 2 * SIDE, 2 * SIDE)]


def get_init_inputs():
    return []
