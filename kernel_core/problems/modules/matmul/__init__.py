"""Families of matrix products, linear chains, elementwise operators over any rank."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {}
