"""RMSNorm over the second dimension, wrong: divides by the mean absolute value."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    x_ptr, y_ptr, num_features, num_places, eps, FEATURES: tl.constexpr, PLACES: tl.constexpr
):
    features = tl.arange(0, FEATURES)
    places = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    inside = (features[:, None] < num_features) & (places[None, :] < num_places)
    offsets = tl.program_id(0).to(tl.int64) * num_features * num_places
    offsets += features[:, None] * num_places + places[None, :]
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    rms = tl.sum(tl.abs(x), axis=0) / num_features + eps
    tl.store(y_ptr + offsets, x / rms[None, :], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, features = x.shape[:2]
        places = x.numel() // (batch * features)
        tile = triton.next_power_of_2(features)
        grid = (batch, triton.cdiv(places, 64))
        rms_norm_kernel[grid](x, y, features, places, self.eps, FEATURES=tile, PLACES=64)
        return y
