"""Families of reductions, scans, norms, pooling, losses and attention."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.reduction.attention import attention
from kernel_core.problems.modules.reduction.losses import pair_loss, row_loss
from kernel_core.problems.modules.reduction.norms import (
    batch_norm,
    frobenius_norm,
    group_norm,
    instance_norm,
    layer_norm,
    vector_norm,
)
from kernel_core.problems.modules.reduction.pools import adaptive_pool, global_pool, window_pool
from kernel_core.problems.modules.reduction.reductions import (
    arg_extreme,
    logsumexp,
    reduce_dim,
    scan,
    softmax_dim,
    softmax_row,
)
from kernel_core.problems.modules.reduction.rows import (
    embedding,
    embedding_bag,
    gated,
    masked_softmax,
    rotary,
    row_gather,
)

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "reduce_dim": reduce_dim,
    "arg_extreme": arg_extreme,
    "logsumexp": logsumexp,
    "softmax_row": softmax_row,
    "softmax_dim": softmax_dim,
    "scan": scan,
    "vector_norm": vector_norm,
    "frobenius_norm": frobenius_norm,
    "batch_norm": batch_norm,
    "instance_norm": instance_norm,
    "group_norm": group_norm,
    "layer_norm": layer_norm,
    "window_pool": window_pool,
    "global_pool": global_pool,
    "adaptive_pool": adaptive_pool,
    "pair_loss": pair_loss,
    "row_loss": row_loss,
    "attention": attention,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
    "row_gather": row_gather,
    "gated": gated,
    "rotary": rotary,
    "masked_softmax": masked_softmax,
}
