"""Work that follows from numbers that host code reads, such as how many elements a mask selects.

The record of such a pass gives wrong outputs for other inputs, although the candidate is right there. So a
second record is made on inputs that the candidate had not seen. Kernels and operators must be the same in
both. Numbers may differ in two ways:

- They are whole, and too few to hold an answer. The second record is right on its own inputs, with the first
  one's memory from outside, which cannot hold the answer.
- They follow from small inputs, as a count of labels or a sum of weights does. The second record is right, by
  all rules of a replay, where only these inputs are the same. No library operator is given another input, and
  own kernels do a tenth of the work. Tables that host code makes of small inputs lie in its own memory.

Such a candidate is correct, but its work cannot be shown to be its own: a finding says so, without a speed.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.messages import CountedWork, DeviceWork, Replayed, ReplayedOnDevice
from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.channel.trace_codec import views_in
from kernel_core.gym.judge.replay_check import ReplayCheck, Unseen
from kernel_core.gym.numerics.compare import each_passes
from kernel_core.gym.oracle.held_inputs import HoldingReference
from kernel_core.gym.oracle.input_families import HOSTILE, moderate
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.verdict.case import UNKNOWN, Case, Ruling
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import Verdict

Numbers = set[tuple[float, float]]

_FEW = 1 / 4
"""The share of the outputs' elements that whole numbers may come to."""
_MOST = 32
"""Numbers that may follow from small inputs."""
_TAKES_FORM = re.compile(r"::new_|_like$")
"""Operators that take the form of their first argument, and no value."""
_LEAST_SHARE = 1 / 10
"""The share of own kernels where numbers follow from small inputs: of time on a GPU, of bytes on a CPU."""


def is_work_of_its_numbers(
    ruling: Ruling,
    recorded: Recorded,
    unseen_of: Callable[[Recorded], Unseen],
    reference: Reference,
    case: Case,
    workers: Workers,
    run_again: Callable[[Trial], Case],
) -> bool:
    """Return True if numbers that host code reads excuse a record that did not reproduce; if so, it is
    noted."""
    rules = {finding.rule for finding in ruling.findings}
    if ruling.verdict is not Verdict.HACKED or "not_reproduced" not in rules:
        return False
    # Not each look at a tensor is noticed: `tolist` and `numpy` go past torch's operators.
    unseen = unseen_of(replace(recorded, trace={**(recorded.trace or {}), "reads_data": True}))
    trial = unseen.make_trial()
    again = run_again(trial)
    try:
        records = again.recorded if again.verdict is None else []
        given = (trial, unseen, reference, case, workers)
        if not any(_Second(record, *given).excuses(recorded) for record in records):
            return False
    finally:
        again.forget_recorded()
    if not case.is_of_unknown_provenance:
        case.note(UNKNOWN, "host code reads numbers from the inputs, and its work follows from them")
    return True


@dataclass(frozen=True, slots=True)
class _Second:
    """A second record, and the trial on which it was made."""

    recorded: Recorded
    trial: Trial
    unseen: Unseen
    reference: Reference
    case: Case
    workers: Workers

    def excuses(self, first: Recorded) -> bool:
        """Return True if it differs from the first record in numbers only, and in one of the two ways."""
        differing: Numbers = set()
        first_parts, other = ([record.kernels, record.trace] for record in (first, self.recorded))
        if not _compare(first_parts, other, differing):
            return False
        with_first = replace(self.recorded, constants=first.constants, memory=first.memory)
        return self._has_few(differing, with_first) or self._reads_small_inputs(differing)

    def _has_few(self, numbers: Numbers, recorded: Recorded) -> bool:
        elements = sum(leaf.value.numel() for leaf in self.reference.with_values(self.trial).expected)
        if any(isinstance(number, float) for number, _ in numbers) or max(1, len(numbers)) > _FEW * elements:
            return False
        own = replace(self.unseen, make_trial=lambda: self.trial)
        with self._replay(recorded, self.reference, own) as witness:
            return witness.is_convinced(other_inputs=False)

    def _reads_small_inputs(self, numbers: Numbers) -> bool:
        holding = HoldingReference(self.reference, self.trial)
        if len(numbers) > _MOST or self._library_reads(holding.is_redrawn):
            return False
        other = next(self._told_apart(holding), None)
        if other is None:
            return False
        elsewhere = replace(
            self.unseen,
            make_trial=lambda: other,
            make_measured=lambda: other,
            draw_others=lambda number: holding.draw(derive_seed(other.seed, f"others {number}"), other.draw),
            exactly=holding.exactly,
        )
        with self._replay(self.recorded, holding, elsewhere) as witness:
            return witness.is_convinced() and self._works_itself(witness)

    def _told_apart(self, holding: HoldingReference) -> Iterator[Trial]:
        """Trials with other large inputs and other outputs. Means of many numbers of one family are alike."""
        known = self.reference.with_values(self.trial).expected
        seed, shapes = derive_seed(self.trial.seed, "larger inputs"), [leaf.shape for leaf in known]
        for draw in filter(holding.is_safe_with, (self.trial.draw, *moderate(HOSTILE))):
            with contextlib.suppress(NotAProblem):
                with self.workers.draw():
                    other = holding.trial(seed, draw)
                is_fit = other.is_usual and shapes == [leaf.shape for leaf in other.expected]
                if is_fit and not each_passes([leaf.value for leaf in known], other.expected):
                    yield other

    def _library_reads(self, which: list[bool]) -> bool:
        """Return True if operators of torch's are given values of inputs, of those for which it is asked."""
        trace = self.recorded.trace or {"inputs": [], "operations": []}
        asked = set(itertools.compress(trace["inputs"], which))
        work = [operation for operation in trace["operations"] if "op" in operation]
        given = [
            [operation["args"][bool(_TAKES_FORM.search(operation["op"])) :], operation["kwargs"]]
            for operation in work
        ]
        return any(view[0] in asked for view in views_in(given))

    def _works_itself(self, witness: ReplayCheck) -> bool:
        kind: Any = ReplayedOnDevice if self.workers.device == "cuda" else Replayed
        measured = witness.measure(kind, self.workers.draw)
        works = measured.works if measured is not None else ()
        own = sum(_cost(work) for work in works if work.own and not work.copies_only)
        return own > _LEAST_SHARE * sum(map(_cost, works))

    @contextlib.contextmanager
    def _replay(self, recorded: Recorded, reference: Reference, unseen: Unseen) -> Iterator[ReplayCheck]:
        with (
            self.workers.open_child("replay", weight_bytes=reference.weight_bytes) as talk,
            ReplayCheck(self.case, Ruling(), recorded, reference, unseen, talk, self.workers) as witness,
        ):
            yield witness


def _cost(work: CountedWork | DeviceWork) -> float:
    return work.device_ms if isinstance(work, DeviceWork) else work.bytes_accessed


def _compare(left: Any, other: Any, differing: Numbers) -> bool:
    """Return True if nothing but numbers differs, of which the pairs go into `differing`."""
    if type(left) is not type(other):
        return False
    if isinstance(left, dict):
        return left.keys() == other.keys() and all(_compare(left[key], other[key], differing) for key in left)
    if isinstance(left, list):
        return len(left) == len(other) and all(map(lambda a, b: _compare(a, b, differing), left, other))
    if type(left) in (int, float) and left != other:
        differing.add((left, other))
        return True
    return bool(left == other)
