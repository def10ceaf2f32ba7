"""Families of matrix products, linear chains, elementwise operators over any rank."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul.activations import activation, activation_formula
from kernel_core.problems.modules.matmul.batched import (
    batched_matmul,
    diagonal_matmul,
    heads_matmul,
    matrix_vector,
    tensor_matmul,
)
from kernel_core.problems.modules.matmul.elementwise import (
    channel_parameter,
    elementwise_chain,
    feature_parameter,
    scalar_product,
    tensor_pair,
)
from kernel_core.problems.modules.matmul.linear_norms import linear_batchnorm, linear_groupnorm
from kernel_core.problems.modules.matmul.linear_pools import linear_pair, linear_pool
from kernel_core.problems.modules.matmul.linear_rows import (
    linear_elementwise,
    linear_layernorm,
    linear_reduction,
    linear_softmax,
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
    "batched_matmul": batched_matmul,
    "heads_matmul": heads_matmul,
    "tensor_matmul": tensor_matmul,
    "matrix_vector": matrix_vector,
    "diagonal_matmul": diagonal_matmul,
    "linear_elementwise": linear_elementwise,
    "linear_reduction": linear_reduction,
    "linear_softmax": linear_softmax,
    "linear_layernorm": linear_layernorm,
    "linear_groupnorm": linear_groupnorm,
    "linear_batchnorm": linear_batchnorm,
    "linear_pool": linear_pool,
    "linear_pair": linear_pair,
}
