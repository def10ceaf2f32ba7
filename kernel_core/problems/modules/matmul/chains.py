"""Chains of steps that are worth computing, and the parts of a module that they bring."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from kernel_core.problems.modules.matmul import operations
from kernel_core.problems.modules.probe import worth_computing
from kernel_core.problems.modules.steps import Step, values

LINEAR_SPREAD = 0.5
"""The standard deviation of a linear layer's output under torch's own initialisation."""


def draw_chain(
    rng: random.Random, length: int, columns: str, taken: set[str], *, vectors: bool = True
) -> list[Step]:
    """Steps behind a linear layer with `columns` output features; `length` steps compute something."""
    while True:
        names = set(taken)
        steps = _drawn(rng, length, columns, names, vectors)
        neighbours = itertools.pairwise(steps)
        if any(step.operator == following.operator for step, following in neighbours):
            continue
        if worth_computing(values(steps, LINEAR_SPREAD)):
            taken.update(names)
            return steps


def _drawn(rng: random.Random, length: int, columns: str, names: set[str], vectors: bool) -> list[Step]:
    choices: list[tuple[Callable[[], Step], int]] = [
        (lambda: operations.activation(rng, names), 10),
        (lambda: operations.number(rng, names), 6),
        (lambda: operations.clamp(rng, names), 2),
        (lambda: operations.twice(rng, names), 1),
    ]
    if vectors:
        choices += [
            (lambda: operations.vector(rng, names, columns), 4),
            (lambda: operations.point(rng, names), 2),
            (lambda: operations.row_input(rng, names), 1),
        ]
    made, weights = [make for make, _ in choices], [weight for _, weight in choices]
    steps = [rng.choices(made, weights)[0]() for _ in range(length)]
    if length > 2 and rng.random() < 0.25:
        saved, added = operations.residual(rng, names)
        at = rng.randint(0, length - 3)
        back = rng.randint(at + 2, length - 1)
        steps = [*steps[:at], saved, *steps[at:back], added, *steps[back + 1 :]]
    if vectors and rng.random() < 0.08:
        at = rng.randint(0, len(steps))
        steps[at:at] = operations.point_twice(rng, names)
    return steps
