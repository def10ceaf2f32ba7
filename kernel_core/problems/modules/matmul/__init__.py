"""Families of matrix products, linear chains, elementwise operators over any rank."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.matmul.activations import activation, activation_formula

FAMILIES: dict[str, Callable[[random.Random], Draft]] = {
    "activation": activation,
    "activation_formula": activation_formula,
}
