"""Families of matrix products, linear chains, elementwise operators over any rank."""

from __future__ import annotations

from kernel_core.problems.modules.draft import by_name
from kernel_core.problems.modules.matmul import (
    activations,
    batched,
    elementwise,
    linear_norms,
    linear_pools,
    linear_rows,
    products,
)

FAMILIES = by_name(
    activations.activation,
    activations.activation_formula,
    elementwise.elementwise_chain,
    elementwise.tensor_pair,
    elementwise.channel_parameter,
    elementwise.feature_parameter,
    elementwise.scalar_product,
    products.matmul,
    products.matmul_transposed,
    products.matmul_large_k,
    products.matmul_triangular,
    batched.batched_matmul,
    batched.heads_matmul,
    batched.tensor_matmul,
    batched.matrix_vector,
    batched.diagonal_matmul,
    linear_rows.linear_elementwise,
    linear_rows.linear_reduction,
    linear_rows.linear_softmax,
    linear_rows.linear_layernorm,
    linear_norms.linear_groupnorm,
    linear_norms.linear_batchnorm,
    linear_pools.linear_pool,
    linear_pools.linear_pair,
)
