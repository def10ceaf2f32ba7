"""Families of matrix products, linear chains, elementwise operators over any rank."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul.activations import activation, activation_formula
from kernel_core.problems.modules.matmul.elementwise import (
    channel_parameter,
    elementwise_chain,
    feature_parameter,
    scalar_product,
    tensor_pair,
)
from kernel_core.problems.modules.matmul.products import (
    matmul,
    matmul_large_k,
    matmul_transposed,
    matmul_triangular,
)

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "activation": activation,
    "activation_formula": activation_formula,
    "elementwise_chain": elementwise_chain,
    "tensor_pair": tensor_pair,
    "channel_parameter": channel_parameter,
    "feature_parameter": feature_parameter,
    "scalar_product": scalar_product,
    "matmul": matmul,
    "matmul_transposed": matmul_transposed,
    "matmul_large_k": matmul_large_k,
    "matmul_triangular": matmul_triangular,
}
