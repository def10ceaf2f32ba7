"""Families of convolutions of one to three dimensions, transposed too, and of chains behind them."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {}
