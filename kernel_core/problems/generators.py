"""The suites without end: what each draws, and from which families."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from kernel_core.problems import families, generate
from kernel_core.problems.graded import Generated
from kernel_core.problems.modules import generate as modules
from kernel_core.problems.splits import Split
from kernel_core.records import Problem

ENDLESS_SUITES = ("generated", "modules", "graphs")
WITHOUT_LIMIT = 512
"""This many are drawn where no limit is set."""


@dataclass(frozen=True)
class Generator:
    """One endless suite."""

    draw: Callable[[Split, int, int, Sequence[str]], list[Generated]]
    """Split, count, seed and families (empty: all)."""
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
    return Generator(modules.generate_modules, trained, modules.RESERVED)


def draw_graphs(
    count: int, seed: int, families: Sequence[str], levels: Mapping[str, float]
) -> list[Generated]:
    """Problems of training from the suite `graphs`, drawn by as many processes as there are cores."""
    from kernel_core.generator.draw.problems import generate_graphs  # the table of operators needs torch

    return generate_graphs("train", count, seed, families, levels, processes=os.cpu_count() or 1)


def answered_by_generator(problems: Iterable[Problem]) -> Iterator[Generated]:
    """Yield problems with the generator's kernel where it writes one, from a process on each core."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _one_thread) as processes:
        yield from filter(None, processes.map(_answered, problems, chunksize=16))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _answered(problem: Problem) -> Generated | None:
    from kernel_core.generator.graded import graded, taught_answer  # the table of operators needs torch
    from kernel_core.generator.read import Unreadable

    try:
        return Generated(problem=problem, kernels=(graded(taught_answer(problem, on_meta=True)),))
    except Unreadable:
        return None
