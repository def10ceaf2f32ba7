"""Families of convolutions of one to three dimensions, transposed too, and of chains behind them."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.convolution import chains, channelwise, single
from kernel_core.problems.modules.draft import Draft

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "conv1d": single.conv1d,
    "conv2d": single.conv2d,
    "conv3d": single.conv3d,
    "conv_transpose1d": single.conv_transpose1d,
    "conv_transpose2d": single.conv_transpose2d,
    "conv_transpose3d": single.conv_transpose3d,
    "conv_depthwise": channelwise.conv_depthwise,
    "conv_pointwise": channelwise.conv_pointwise,
    "conv_depthwise_separable": channelwise.conv_depthwise_separable,
    "conv_elementwise": chains.conv_elementwise,
    "conv_norm": chains.conv_norm,
    "conv_reduce": chains.conv_reduce,
    "conv_pool": chains.conv_pool,
}
