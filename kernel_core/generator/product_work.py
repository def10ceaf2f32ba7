"""Work of products by the shapes of their operands, and as bytes that a GPU moves in the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernel_core.generator.ir import Value
from kernel_core.generator.library_calls import CONVOLUTIONS, PRODUCTS

OPERATIONS_PER_BYTE = 16
"""Operations of float32 that a GPU does in the time of a byte: 67 TFLOPS and 4 TB/s of an H200."""
_WITH_SUMMAND = ("addmm", "baddbmm", "addbmm")
"""Products whose first operand is added."""


def num_operations(base: str, tensors: Sequence[torch.Tensor], result: torch.Tensor) -> int:
    """Return the multiplications and additions of a product, by the shapes of its first operands."""
    if base not in PRODUCTS or len(tensors) < 2:
        return 0
    x, weight = tensors[:2]
    if base == "scaled_dot_product_attention":
        return 4 * x.numel() * weight.shape[-2]
    if base in CONVOLUTIONS:
        positions = x if "transpose" in base else result
        return 2 * positions.numel() * weight[0].numel()
    return 2 * result.numel() * x.shape[-1]


def own_share(own: Sequence[Value], values: Sequence[Value]) -> float:
    """Return the share of tensors of own kernels, beside the matrix products of a graph that stay torch's."""
    own_bytes = sum(math.prod(map(int, value.shape)) * value.dtype.itemsize for value in own)
    return own_bytes / (own_bytes + sum(_product_bytes(value) for value in values if value.op == "call"))


def _product_bytes(call: Value) -> int:
    """Return the work of a matrix product that stays torch's; 0 for other calls."""
    if call.base not in PRODUCTS - CONVOLUTIONS or not call.tensors:
        return 0
    operands = call.tensors[1:] if call.base in _WITH_SUMMAND else call.tensors
    operations = 2 * math.prod(map(int, call.shape)) * int(operands[0].shape[-1])
    return operations // OPERATIONS_PER_BYTE
