"""Of what a candidate recorded in its trials, what is the same is kept once, and what it did last counts."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kernel_core.gym.channel.messages import Kernel, Launch
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.oracle.input_families import Draw
from kernel_core.gym.verdict.case import Case
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.records import Candidate, Problem

_KERNELS = [Kernel(name=name, line=3, globals={}) for name in ("pack", "work")]


@pytest.fixture
def case(problems: dict[str, Problem]) -> Case:
    return Case(JudgeRequest(problem=problems["relu"], candidate=Candidate.from_source("")))


def _recorded(
    number: int, draw: Draw, *kernels: int, known: int = 2, held: bytes = b"", **changes: Any
) -> Recorded:
    operations = [{"launch": kernel, "grid": [1], "args": {}, "options": {}} for kernel in kernels]
    trace = {"inputs": [0], "constants": [], "operations": operations, "outputs": []}
    return Recorded(
        trials={number: draw},
        kernels=tuple(_KERNELS[:known]),
        launches=tuple(Launch.model_validate(one) for one in operations),
        trace=trace | changes,
        constants=held,
        memory=(os.open(os.devnull, os.O_RDONLY),),
    )


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_passes_that_do_the_same_are_one_with_the_newest_memory(case: Case) -> None:
    first, second = _recorded(0, "own", 0, known=1), _recorded(1, "own", 0)
    [older], [newer] = first.memory, second.memory
    case.keep_recorded(first)
    case.keep_recorded(second)
    assert case.recorded == [second]
    assert second.trials == {0: "own", 1: "own"}
    assert not _is_open(older) and _is_open(newer)
    case.forget_recorded()
    assert not _is_open(newer)


@pytest.mark.parametrize("changes", [{"outputs": [1.0]}, {"inputs": [1]}, {"constants": [[1, 8, "cpu"]]}])
def test_passes_that_differ_are_both_kept(case: Case, changes: dict[str, Any]) -> None:
    case.keep_recorded(_recorded(0, "own", 0))
    case.keep_recorded(_recorded(1, "own", 0, **changes))
    assert len(case.recorded) == 2
    case.forget_recorded()


def test_passes_that_find_other_numbers_in_memory_are_both_kept(case: Case) -> None:
    for number in range(2):
        case.keep_recorded(_recorded(number, "own", 0, held=bytes([number])))
    assert len(case.recorded) == 2
    case.forget_recorded()


def test_preparation_need_only_be_right_and_what_comes_after_counts(case: Case) -> None:
    prepares, works = _recorded(0, "own", 0, 1), _recorded(1, "own", 1)
    for one in (prepares, works, _recorded(2, "mixed", 1)):
        case.keep_recorded(one)
    first, last = case.to_replay()
    assert first is prepares and not case.is_measured(first)
    assert last.trials == {1: "own", 2: "mixed"} and case.is_measured(last)
    assert case.measured_draw(last) == "own" and last.last_draw == "mixed"
    case.forget_recorded()


def test_what_it_does_on_own_draws_counts_where_it_does_something_else_on_others(case: Case) -> None:
    for one in (_recorded(0, "own", 0), _recorded(1, "own", 0), _recorded(2, "mixed", 1)):
        case.keep_recorded(one)
    first, last = case.to_replay()
    assert case.is_measured(first) and case.measured_draw(first) == "mixed"
    assert case.is_measured(last) and case.measured_draw(last) == "own"
    case.forget_recorded()


def test_comments_are_no_code_of_a_candidate(problems: dict[str, Problem]) -> None:
    """A comment on autotuning asks for no runs with other configurations."""
    text = "# no autotune here\nname = 'autotune # 2'\n"
    case = Case(JudgeRequest(problem=problems["relu"], candidate=Candidate.from_source(text)))
    assert case.code == "name = 'autotune # 2'"
