"""Families of reductions, scans, norms, pooling, losses and attention."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {}
