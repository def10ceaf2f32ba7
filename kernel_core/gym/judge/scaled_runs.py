"""Runs of a candidate at sizes larger than those at which it was judged.

A candidate that is correct at the run sizes runs once at each of the sizes of `grown_sizes`. It runs at
further sizes if one of its loops or grids has turned less so far than at the problem's own sizes. Only wrong
outputs and crashes count, with a loose tolerance, because longer rows round more.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.loop_coverage import (
    Turns,
    covering,
    enough_of,
    merged,
    missing,
    turns_of,
    values_of,
)
from kernel_core.gym.channel.messages import Kernel, RehearsedPass
from kernel_core.gym.judge.problem_cache import KEPT_PROBLEMS, Prepared, keep
from kernel_core.gym.judge.scaled_sizes import (
    TO_LAUNCH,
    TO_TURN,
    Room,
    Sizes,
    cheap_room,
    grown_sizes,
    in_order,
    turning_sizes,
)
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial, loose
from kernel_core.gym.prediction.full_size import run_without_data
from kernel_core.gym.verdict.case import Case
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import NOT_EXERCISED, Verdict

TUNED = "autotune"
_PROCESSORS = "processor_count"
"""The number of multiprocessors, by torch's name and by Triton's."""
_MOST_GROWN_S, _MOST_TURNING_S = 3.0, 10.0
"""The time limits of a candidate at grown sizes, and at sizes that turn a loop, of its own time."""
_FEW_STEPS, _TIMES_AS_CHEAP = 256, 4
"""Steps of an interpreter that are cheap for any candidate, and the factor by which a cheap run may take more
than one at the run sizes."""


class ScaledRuns:
    """The further runs of one judge's candidates."""

    def __init__(self, prepared: Prepared, workers: Workers, try_again: Callable[..., Case]) -> None:
        self._prepared = prepared
        self._workers = workers
        self._try_again = try_again
        self._grown: OrderedDict[str, tuple[Sizes, ...]] = OrderedDict()

    def grow(self, reference: Reference, seed: int, case: Case) -> None:
        """Run once at each grown size, or again at the run sizes if the candidate asks for what a GPU has."""
        asks = any(word in case.code for word in (TUNED, _PROCESSORS))
        sizes = self._grown_sizes(reference) or (reference.sizes,) * asks
        self._run(sizes, _MOST_GROWN_S, reference, seed, case)

    def turn_loops(self, own: Turns, reference: Reference, seed: int, case: Case) -> None:
        """Run where loops and grids turn that turned less so far than `own`, the turns at the problem's own
        sizes: enough at any sizes that fit, and many where that is cheap. What turns less than enough is a
        finding."""
        enough, many = enough_of(own), own | values_of(reference.problem.constants)
        case.turns |= values_of(reference.problem.constants | reference.sizes)
        self._run_where_turned(enough, TO_TURN, math.inf, reference, seed, case)
        self._run_where_turned(many, cheap_room(reference), _TIMES_AS_CHEAP, reference, seed, case)
        if case.verdict is None and (left := missing(enough, case.turns)):
            name, turns = next(iter(left.items()))
            case.note(
                NOT_EXERCISED,
                f"{name} has {turns} or more turns at the problem's own sizes, and {case.turns.get(name, 0)} "
                f"at the sizes that were judged ({len(left)} in all)",
            )

    def _run_where_turned(
        self, wanted: Turns, room: Room, most_times: float, reference: Reference, seed: int, case: Case
    ) -> None:
        """Run at few sizes within `room` that turn what is missing of `wanted`. No run takes more than
        `most_times` the steps at the run sizes, if these are not few."""
        needed = missing(wanted, case.turns)
        if case.verdict is not None or not needed:
            return
        tried = [reference.sizes, *turning_sizes(reference, room)]
        probed = self._probed(tried, reference, case)
        most_steps = max(_FEW_STEPS, most_times * probed[0].steps)
        turns = [there.turns if there.steps <= most_steps else {} for there in probed]
        runs = [tried[place] for place in covering(needed, case.turns, turns)]
        self._run(runs, _MOST_TURNING_S, reference, seed, case)

    def launching_sizes(self, reference: Reference, case: Case) -> Sizes | None:
        """Return the smallest sizes where a candidate launches a kernel that leaves small inputs to the
        library; None where there are none."""
        tried = turning_sizes(reference, TO_LAUNCH)
        probed = self._probed(tried, reference, case)
        return next((sizes for sizes, there in zip(tried, probed, strict=True) if there.steps), None)

    def _probed(self, tried: Sequence[Sizes], reference: Reference, case: Case) -> list[_Probed]:
        """Return the turns at each of these sizes. Host code that fails there turns nothing."""
        probed = run_without_data(case, reference, tried, self._workers) if tried else ""
        if isinstance(probed, str):
            return [_Probed()] * len(tried)
        return [
            _Probed.of(tried_pass, probed.kernels, sizes)
            if isinstance(tried_pass, RehearsedPass)
            else _Probed()
            for sizes, tried_pass in zip(tried, probed.passes, strict=True)
        ]

    def _run(
        self, sizes_of_runs: Sequence[Sizes], most_s: float, reference: Reference, seed: int, case: Case
    ) -> None:
        """A run that takes too long counts for nothing, and a finding says so. A fault at sizes in an order
        that real sizes never have is a finding, and counts if it occurs in their order, too."""
        runs, before = [*sizes_of_runs], reference.problem.constants | reference.sizes
        for number, sizes in enumerate(runs):
            changed = [f"{name}={size}" for name, size in sizes.items() if size != before.get(name)]
            where = [f"at {', '.join(changed)}"] if changed else []
            try:
                larger = self._prepared.reference(case.request.model_copy(update={"sizes": sizes}))
                trials = self._trials(larger, reference, seed)
            except NotAProblem:
                continue
            for way in _ways(case.code, number, is_last=sizes is runs[-1]):
                again = self._try_again(
                    larger, case, *trials, job=way.job, most_s=most_s, configuration=way.configuration
                )
                case.turns = merged(case.turns, again.turns, values_of(sizes))
                place = ", ".join([*where, *way.where])
                fault = _fault(again) if way.tells(again, case) else None
                if fault is not None:
                    if (ordered := in_order(reference, sizes)) is not None:
                        case.note("narrow_domain", f"{again.detail} ({place})")
                        if ordered not in runs:  # where orders contradict each other, it may come again
                            runs.append(ordered)
                        break
                    case.fail(fault, f"{again.detail} ({place})", again.line)
                if again.verdict is Verdict.TIMED_OUT:
                    case.note("not_grown", f"it took more than {most_s:g} s {place}")
                # A slow configuration does not stop the search.
                is_slow = again.verdict is Verdict.TIMED_OUT and way.configuration is None
                if case.verdict is not None or is_slow:
                    return

    def _trials(self, larger: Reference, reference: Reference, seed: int) -> list[Trial]:
        """Return a trial of the last family, if the reference takes it there, and one of the problem's own
        inputs: in even ones the running maximum of a softmax hardly changes."""
        draws = self._prepared.draws(reference, seed)
        own = self._prepared.trial(larger, seed, draws[0][0], "own")
        label, draw = draws[-1]
        if draw == "own":
            return [loose(own)]
        last = self._prepared.trial(larger, seed, label, draw)
        return [loose(trial) for trial in (last, own) if trial is own or trial.is_usual]

    def _grown_sizes(self, reference: Reference) -> tuple[Sizes, ...]:
        if reference.key not in self._grown:
            keep(self._grown, reference.key, grown_sizes(reference), KEPT_PROBLEMS)
        return self._grown[reference.key]


@dataclass(frozen=True, slots=True)
class _Probed:
    """Turns and steps that a dry run counts at some sizes."""

    turns: Turns = field(default_factory=dict)
    steps: int = 0
    """Programs of all launches by the turns of their loops: the time that an interpreter takes."""

    @classmethod
    def of(cls, tried: RehearsedPass, kernels: Sequence[Kernel], sizes: Sizes) -> Self:
        """Return what a pass at these sizes shows."""
        programs = sum(math.prod(tried.distinct[place].grid) for place in tried.launches)
        turns = turns_of(tried.turns, kernels, tried.distinct) | values_of(sizes)
        return cls(turns, programs * max(1, sum(count for _, count in tried.turns)))


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to run a candidate at grown sizes."""

    job: str = "runner"
    configuration: int | None = None
    """The place of another configuration of its autotuners."""
    where: tuple[str, ...] = ()

    def tells(self, again: Case, case: Case) -> bool:
        """Return True if a failure of this run is the candidate's fault. An autotuner leaves out
        configurations that fail. A GPU of one multiprocessor does not exist, and changes how programs share
        work only."""
        if self.configuration is not None:
            return again.verdict is Verdict.WRONG
        is_alike = len(again.launches) == len(case.launches) and all(
            all(launch.grid) for launch in again.launches
        )
        return is_alike or self.job == "runner"


def _ways(code: str, number: int, *, is_last: bool) -> list[_Way]:
    """Return the ways to run a candidate at the sizes of this number."""
    ways = [_Way()]
    if TUNED in code:
        where = ("with another configuration of its autotuner",)
        ways.append(_Way(configuration=-1 - number, where=where))
    if _PROCESSORS in code and is_last:
        where = ("where a program for each multiprocessor has several turns",)
        ways.append(_Way("runner_on_one_processor", where=where))
    return ways


def _fault(again: Case) -> Verdict | None:
    is_fault = again.verdict is Verdict.WRONG or (again.verdict is Verdict.CRASHED and again.line)
    return again.verdict if is_fault else None
