"""The suites without end: what each draws, and from which families."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernel_core.problems import families, generate
from kernel_core.problems.graded import Generated
from kernel_core.problems.modules import generate as modules
from kernel_core.problems.splits import Split

ENDLESS_SUITES = ("generated", "modules", "graphs")
WITHOUT_LIMIT = 512
"""This many are drawn where no limit is set."""


@dataclass(frozen=True)
class Generator:
    """One endless suite."""

    draw: Callable[[Split, int, int, Sequence[str]], list[Generated]]
    """Split, count, seed and families (empty: all). Problems of `modules` come without kernels."""
    trained: tuple[str, ...]
    """Families that have problems of training."""
    reserved: frozenset[str]
    """Families that are held out as a whole."""

    @property
    def families(self) -> tuple[str, ...]:
        """Every family."""
        return (*self.trained, *sorted(self.reserved))


def generator_of(suite: str) -> Generator:
    """The generator of one of `ENDLESS_SUITES`."""
    if suite == "generated":
        return Generator(generate.generate, tuple(families.TRAINED), frozenset(families.RESERVED))
    if suite == "graphs":
        from kernel_core.generator.draw import problems as graphs  # the table of operators needs torch

        return Generator(graphs.generate_graphs, graphs.families(), frozenset())
    trained = tuple(name for name in modules.FAMILIES if name not in modules.RESERVED)
    return Generator(_draw_modules, trained, modules.RESERVED)


def _draw_modules(split: Split, count: int, seed: int, families: Sequence[str]) -> list[Generated]:
    return [Generated(problem=problem) for problem in modules.generate_modules(split, count, seed, families)]


def draw_graphs(
    count: int, seed: int, families: Sequence[str], levels: Mapping[str, float]
) -> list[Generated]:
    """Problems of training from the suite `graphs`, drawn by as many processes as there are cores."""
    from kernel_core.generator.draw.problems import generate_graphs  # the table of operators needs torch

    return generate_graphs("train", count, seed, families, levels, processes=os.cpu_count() or 1)
