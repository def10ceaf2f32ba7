"""The problem families: each draws programs from a random generator, without end."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.families import compositions, elementwise, gathers, norms, products, rows
from kernel_core.problems.program import Program

Draw = Callable[[random.Random], Program]

TRAINED: dict[str, Draw] = {
    "elementwise_chain": elementwise.elementwise_chain,
    "binary_chain": elementwise.binary_chain,
    "bias_activation": elementwise.bias_activation,
    "outer": elementwise.outer,
    "row_reduce": rows.row_reduce,
    "softmax": rows.softmax,
    "log_softmax": rows.log_softmax,
    "cumsum": rows.cumsum,
    "loss": rows.loss,
    "layer_norm": norms.layer_norm,
    "rms_norm": norms.rms_norm,
    "group_norm": norms.group_norm,
    "embedding": gathers.embedding,
    "gated": gathers.gated,
    "pool1d": gathers.pool1d,
    "matmul_epilogue": products.matmul_epilogue,
    "attention": products.attention,
}
"""Families that training may show."""

RESERVED: dict[str, Draw] = {
    "bias_softmax": compositions.bias_softmax,
    "residual_norm": compositions.residual_norm,
    "embedding_norm": compositions.embedding_norm,
    "gated_norm": compositions.gated_norm,
}
"""Held-out families: each joins parts that trained families show, in a way none of them does."""
