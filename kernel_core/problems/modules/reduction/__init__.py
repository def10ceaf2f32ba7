"""Families of reductions, scans, norms, pooling, losses and attention."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.reduction.attention import attention
from kernel_core.problems.modules.reduction.batch_norms import batch_norm
from kernel_core.problems.modules.reduction.gates import gated, masked_softmax, rotary
from kernel_core.problems.modules.reduction.gathers import embedding, embedding_bag, row_gather
from kernel_core.problems.modules.reduction.global_pool import adaptive_pool, global_pool
from kernel_core.problems.modules.reduction.group_norms import group_norm, instance_norm, layer_norm
from kernel_core.problems.modules.reduction.losses import pair_loss
from kernel_core.problems.modules.reduction.pooling import window_pool
from kernel_core.problems.modules.reduction.reduce import arg_extreme, logsumexp, reduce_dim
from kernel_core.problems.modules.reduction.row_losses import row_loss
from kernel_core.problems.modules.reduction.scan import scan
from kernel_core.problems.modules.reduction.softmax import softmax_dim, softmax_row
from kernel_core.problems.modules.reduction.vector_norms import frobenius_norm, vector_norm

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
