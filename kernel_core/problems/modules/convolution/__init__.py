"""Families of convolutions of one to three dimensions, transposed too, and of chains behind them."""

from __future__ import annotations

from functools import partial

from kernel_core.problems.modules.convolution import chains, channelwise, single
from kernel_core.problems.modules.draft import Draw

FAMILIES: dict[str, Draw] = {
    **{
        f"{operator}{rank}d": partial(single.one_layer, rank=rank, transposed=operator == "conv_transpose")
        for operator in ("conv", "conv_transpose")
        for rank in (1, 2, 3)
    },
    "conv_depthwise": channelwise.conv_depthwise,
    "conv_pointwise": channelwise.conv_pointwise,
    "conv_depthwise_separable": channelwise.conv_depthwise_separable,
    **{
        family: partial(chains.chained, family=family)
        for family in ("conv_elementwise", "conv_norm", "conv_reduce", "conv_pool")
    },
}
