"""Work that follows from numbers that host code reads, such as how many elements a mask selects.

The record of such a pass gives wrong outputs for other inputs, although the candidate is right there. So a
second record is made on inputs that the candidate had not seen, and replayed on these. All but whole numbers
must be the same in both records: kernels, operators, constants and fractions. A few whole numbers hold no
answer. Such a candidate is correct, but its work cannot be shown to be its own: a finding says so, and no
speed is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernel_core.gym.judge.replay_check import ReplayCheck, Unseen
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.verdict.case import UNKNOWN, Case, Ruling
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import Verdict

_FEW = 1 / 4
"""The share of the outputs' elements that whole numbers of host code may come to."""


def is_work_of_its_numbers(
    ruling: Ruling,
    recorded: Recorded,
    unseen: Unseen,
    reference: Reference,
    case: Case,
    workers: Workers,
    run_again: Callable[[Trial], Case],
) -> bool:
    """Whether numbers that host code reads excuse a record that did not reproduce; if so, it is noted."""
    is_in_doubt = ruling.verdict is Verdict.HACKED and any(
        one.rule == "not_reproduced" for one in ruling.findings
    )
    if not is_in_doubt or not recorded.knows_its_inputs or recorded.memory:
        return False
    trial = unseen.make_trial()
    again = run_again(trial)
    try:
        if again.verdict is not None or len(again.recorded) != 1:
            return False
        [second] = again.recorded
        numbers = numbers_that_differ(recorded, second)
        elements = sum(one.value.numel() for one in reference.with_values(trial).expected)
        if numbers is None or numbers > _FEW * elements:
            return False
        if not _is_right(second, trial, unseen, reference, case, workers):
            return False
    finally:
        again.forget_recorded()
    if not case.is_of_unknown_provenance:
        case.note(UNKNOWN, "host code reads numbers from the inputs, and its work follows from them")
    return True


def _is_right(
    second: Recorded, trial: Trial, unseen: Unseen, reference: Reference, case: Case, workers: Workers
) -> bool:
    """Whether the record gives the right outputs for its own inputs, and not without its kernels."""
    ruling, own = Ruling(), replace(unseen, make_trial=lambda: trial)
    with (
        workers.open_child("replay") as talk,
        ReplayCheck(case, ruling, second, reference, own, talk, workers) as witness,
    ):
        return witness.is_convinced(other_inputs=False)


def numbers_that_differ(one: Recorded, other: Recorded) -> int | None:
    """How many whole numbers differ between two records; None where anything else does."""
    if one.kernels != other.kernels or one.constants != other.constants:
        return None
    found: set[tuple[int, int]] = set()
    return len(found) if _compare(one.trace, other.trace, found) else None


def _compare(one: Any, other: Any, found: set[tuple[int, int]]) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_compare(one[key], other[key], found) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(lambda a, b: _compare(a, b, found), one, other))
    if type(one) is int and one != other:
        found.add((one, other))
        return True
    return bool(one == other)
