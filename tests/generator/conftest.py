"""Drawn problems that several files look at: the draw and the answers take longer than looking."""

from __future__ import annotations

import pytest

from kernel_core.generator.answer import answer
from kernel_core.generator.draw.problems import generate_graphs
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem
from tests.generator.small_problems import BY_SCHEDULE

_COUNT, _SEED = 60, 4


@pytest.fixture(scope="session")
def drawn_graphs() -> list[Problem]:
    """Problems of the training split, with graphs of all levels."""
    return [made.problem for made in generate_graphs("train", _COUNT, _SEED)]


@pytest.fixture(scope="session")
def answers_of_graphs(drawn_graphs: list[Problem]) -> dict[str, str]:
    """The text of each problem's answer, by the problem's id."""
    return {problem.id: answer(problem, on_meta=True).source for problem in drawn_graphs}


@pytest.fixture(scope="session")
def answers_by_schedule() -> dict[str, str]:
    """The text of the answer to each small problem, by its name."""
    return {
        name: answer(parse_problem(source, id="test", suite="test")).source
        for name, source in BY_SCHEDULE.items()
    }
