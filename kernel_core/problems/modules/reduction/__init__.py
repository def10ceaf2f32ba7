"""Families of reductions, scans, norms, pooling, losses and attention."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.reduction.reduce import arg_extreme, logsumexp, reduce_dim
from kernel_core.problems.modules.reduction.scan import scan
from kernel_core.problems.modules.reduction.softmax import softmax_dim, softmax_row

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "reduce_dim": reduce_dim,
    "arg_extreme": arg_extreme,
    "logsumexp": logsumexp,
    "softmax_row": softmax_row,
    "softmax_dim": softmax_dim,
    "scan": scan,
}
