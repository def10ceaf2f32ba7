"""Families of reductions, scans, norms, pooling, losses and attention."""

from __future__ import annotations

from kernel_core.problems.modules.draft import by_name
from kernel_core.problems.modules.reduction import attention, losses, norms, pools, reductions, rows

FAMILIES = by_name(
    reductions.reduce_dim,
    reductions.arg_extreme,
    reductions.logsumexp,
    reductions.softmax_row,
    reductions.softmax_dim,
    reductions.scan,
    norms.vector_norm,
    norms.frobenius_norm,
    norms.batch_norm,
    norms.instance_norm,
    norms.group_norm,
    norms.layer_norm,
    pools.window_pool,
    pools.global_pool,
    pools.adaptive_pool,
    losses.pair_loss,
    losses.row_loss,
    attention.attention,
    rows.embedding,
    rows.embedding_bag,
    rows.row_gather,
    rows.gated,
    rows.rotary,
    rows.masked_softmax,
)
