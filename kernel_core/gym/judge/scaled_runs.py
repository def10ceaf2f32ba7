"""Runs of a candidate at sizes larger than those at which it was judged.

A candidate that is correct at the run sizes runs once at each of the sizes of `grown_sizes`. It runs at
further sizes if one of its loops or grids has turned less so far than at the problem's own sizes. Only wrong
outputs and crashes count, with a loose tolerance, because longer rows round more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.loop_coverage import Turns, covering, merged, missing, turns_of
from kernel_core.gym.channel.messages import RehearsedPass
from kernel_core.gym.judge.problem_cache import KEPT_PROBLEMS, Prepared, keep
from kernel_core.gym.judge.scaled_sizes import Sizes, grown_sizes, in_order, turning_sizes
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial, loose
from kernel_core.gym.prediction.full_size import run_without_data
from kernel_core.gym.verdict.case import Case
from kernel_core.gym.workers.workers import Workers
from kernel_core.problems.source import resize
from kernel_core.records import NOT_EXERCISED, Verdict

TUNED = "autotune"
_PROCESSORS = "processor_count"
"""The number of multiprocessors, by torch's name and by Triton's."""
_MOST_GROWN_S, _MOST_TURNING_S = 3.0, 10.0
"""The time limits of a candidate at grown sizes, and at sizes that turn a loop, of its own time."""
_TIMES_TO_LAUNCH = 16
"""The factor by which sizes may be larger at which a candidate first launches a kernel of its own."""


class ScaledRuns:
    """The further runs of one judge's candidates."""

    def __init__(self, prepared: Prepared, workers: Workers, try_again: Callable[..., Case]) -> None:
        self._prepared = prepared
        self._workers = workers
        self._try_again = try_again
        self._grown: OrderedDict[str, tuple[Sizes, ...]] = OrderedDict()

    def grow(self, reference: Reference, seed: int, case: Case) -> None:
        """Run once at each grown size, or again at the run sizes if the candidate asks for what a GPU has."""
        asks = any(word in case.source for word in (TUNED, _PROCESSORS))
        sizes = self._grown_sizes(reference) or (reference.sizes,) * asks
        self._run(sizes, _MOST_GROWN_S, reference, seed, case)

    def turn_loops(self, own: Turns, reference: Reference, seed: int, case: Case) -> None:
        """Run where loops and grids turn that turned less so far than `own`, the turns at the problem's own
        sizes. What still turns less is a finding."""
        needed = missing(own, case.turns)
        if case.verdict is not None or not needed:
            return
        tried = turning_sizes(reference)
        probed = [turns for turns, _ in self._probed(tried, reference, case)]
        runs = [tried[place] for place in covering(needed, probed)]
        self._run(runs, _MOST_TURNING_S, reference, seed, case)
        if case.verdict is None and (left := missing(needed, case.turns)):
            name, turns = next(iter(left.items()))
            case.note(
                NOT_EXERCISED,
                f"{name} has {turns} or more turns at the problem's own sizes, and {case.turns.get(name, 0)} "
                f"at the sizes that were judged ({len(left)} in all)",
            )

    def launching_sizes(self, reference: Reference, case: Case) -> Sizes | None:
        """Return the smallest sizes where a candidate launches a kernel that leaves small inputs to the
        library; None where there are none."""
        tried = turning_sizes(reference, times=_TIMES_TO_LAUNCH)
        probed = self._probed(tried, reference, case)
        return next((sizes for sizes, (_, launches) in zip(tried, probed, strict=True) if launches), None)

    def _probed(self, tried: Sequence[Sizes], reference: Reference, case: Case) -> list[tuple[Turns, bool]]:
        """Return the turns at each of these sizes, and True where a kernel is launched. Host code that fails
        there turns nothing."""
        sources = [resize(reference.problem, sizes).source for sizes in tried]
        probed = run_without_data(case, reference, sources, self._workers) if tried else ""
        if isinstance(probed, str):
            return [({}, False)] * len(tried)
        return [
            (turns_of(tried_pass.turns, probed.kernels, tried_pass.distinct), bool(tried_pass.launches))
            if isinstance(tried_pass, RehearsedPass)
            else ({}, False)
            for tried_pass in probed.passes
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
            for way in _ways(case.source, number, is_last=sizes is runs[-1]):
                again = self._try_again(
                    larger, case, *trials, job=way.job, most_s=most_s, configuration=way.configuration
                )
                case.turns = merged(case.turns, again.turns)
                place = ", ".join([*where, *way.where])
                fault = _fault(again) if way.tells(again, case) else None
                if fault is not None:
                    if (ordered := in_order(reference, sizes)) is not None:
                        case.note("narrow_domain", f"{again.detail} ({place})")
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


def _ways(source: str, number: int, *, is_last: bool) -> list[_Way]:
    """Return the ways to run a candidate at the sizes of this number."""
    ways = [_Way()]
    if TUNED in source:
        where = ("with another configuration of its autotuner",)
        ways.append(_Way(configuration=-1 - number, where=where))
    if _PROCESSORS in source and is_last:
        where = ("where a program for each multiprocessor has several turns",)
        ways.append(_Way("runner_on_one_processor", where=where))
    return ways


def _fault(again: Case) -> Verdict | None:
    is_fault = again.verdict is Verdict.WRONG or (again.verdict is Verdict.CRASHED and again.line)
    return again.verdict if is_fault else None
