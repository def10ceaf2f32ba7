"""The judge where there is no GPU: kernels are interpreted, compiled for one, and their times predicted."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.config import GymConfig
from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.compiled_products import UNKNOWN
from kernel_core.gym.channel.loop_coverage import covering, merged, missing, turns_of
from kernel_core.gym.channel.messages import Kernel, Launch, Replayed
from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.channel.work import Work
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.compile_check import CompileGate, CompileUnit, refuse_grids
from kernel_core.gym.judge.judge import NO_OWN_KERNEL, Judge
from kernel_core.gym.judge.precision import note_precision
from kernel_core.gym.judge.problem_cache import KEPT_PROBLEMS, Prepared, keep
from kernel_core.gym.judge.replay_check import NOT_NEEDED, ReplayCheck, Unseen
from kernel_core.gym.judge.scaled_sizes import Sizes, grown_sizes, in_order, turning_sizes
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.small_sizes import with_other_sizes, with_small_sizes
from kernel_core.gym.oracle.trial import loose
from kernel_core.gym.prediction.full_size import (
    Rehearsal,
    check_at_own_sizes,
    ran_as,
    rehearse,
    run_without_data,
    works_at_own_sizes,
)
from kernel_core.gym.prediction.own_work_share import weigh
from kernel_core.gym.prediction.roofline import EagerTraffic, count_eager
from kernel_core.gym.sandbox.fork_server import ForkServer
from kernel_core.gym.verdict.case import Case, Ruling
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.gym.workers.child import ChildSession
from kernel_core.gym.workers.workers import Workers
from kernel_core.problems.source import resize
from kernel_core.records import NOT_EXERCISED, Evaluation, NoCandidate, Problem, Verdict

_AT_OWN_SIZES = "at the problem's own sizes: "
_TIMES_TO_LAUNCH = 16
"""The factor by which sizes may be larger at which a candidate first launches a kernel of its own."""
_PROCESSORS = "processor_count"
"""The number of multiprocessors, by torch's name and by Triton's."""
_TUNED = "autotune"
_OTHER_CONFIGURATIONS = (-1, -2)
"""The last configurations of an autotuner, which are the smallest of most."""
_FEW_PASSES, _MANY_PASSES, _MOST_LATER_S = 3, 9, 0.5
"""Passes after the trials, and the seconds after which those beyond the first few are left out."""
_MOST_GROWN_S, _MOST_TURNING_S = 3.0, 10.0
"""The time limits of a candidate at grown sizes, and at those where a loop turns that did not before, of its
own time."""


class CpuJudge(Judge):
    """A kernel that does not compile comes before anything that happened while running."""

    def __init__(self, config: GymConfig, workers: Workers, compilers: ForkServer, base: str) -> None:
        super().__init__(config, workers, Prepared(config, workers))
        self._gate = CompileGate(compilers, base, config.predict_gpu)
        self._eager: OrderedDict[str, EagerTraffic] = OrderedDict()
        self._grown: OrderedDict[str, tuple[Sizes, ...]] = OrderedDict()

    def evaluate(self, request: JudgeRequest, seed: int) -> Evaluation:
        """See `Judge`. A problem without sizes for a CPU has them by a rule, and a candidate that is not
        correct there is judged once more at others: see `small_sizes.py`."""
        if request.sizes is not None or isinstance(request.candidate, NoCandidate):
            return super().evaluate(request, seed)
        problem = with_small_sizes(request.problem)
        evaluation = super().evaluate(request.model_copy(update={"problem": problem}), seed)
        other = self._where_launched(request, problem, seed, evaluation)
        other = other or with_other_sizes(problem, evaluation.verdict)
        if other is None:
            return evaluation
        again = super().evaluate(request.model_copy(update={"problem": other}), seed)
        seconds = evaluation.seconds + again.seconds
        chosen = again if again.verdict is Verdict.CORRECT else evaluation
        return chosen.model_copy(update={"seconds": seconds})

    def _where_launched(
        self, request: JudgeRequest, problem: Problem, seed: int, evaluation: Evaluation
    ) -> Problem | None:
        """Return the problem at the smallest sizes where a candidate that leaves small inputs to the library
        launches a kernel; None for any other, and for a problem that names its sizes."""
        if request.problem.cpu_constants or all(one.rule != NO_OWN_KERNEL for one in evaluation.findings):
            return None
        case = Case(request.model_copy(update={"problem": problem}), seed=seed)
        reference = self._prepared.reference(case.request)
        tried = turning_sizes(reference, times=_TIMES_TO_LAUNCH)
        sources = [resize(reference.problem, sizes).source for sizes in tried]
        probed = run_without_data(case, reference, sources, self._workers) if tried else ""
        if isinstance(probed, str):
            return None
        launching = [sizes for sizes, one in zip(tried, probed.passes, strict=True) if one.launches]
        return problem.model_copy(update={"cpu_constants": launching[0]}) if launching else None

    def _decide(self, request: JudgeRequest, seed: int, case: Case) -> None:
        """With the first configuration of its autotuners, or with others where that one exceeds the GPU: an
        autotuner leaves it out."""
        known = tuple(case.findings)
        self._decide_configured(request, seed, case)
        for place in _OTHER_CONFIGURATIONS if _TUNED in case.source else ():
            if not case.exceeds_gpu:
                break
            case.begin_again(place, known)
            self._decide_configured(request, seed, case)

    def _decide_configured(self, request: JudgeRequest, seed: int, case: Case) -> None:
        reference = self._prepared.reference(request)
        with self._runner(case) as talk:
            if self._try_all(talk, reference, seed, case) and not self._strict:
                self._try_later(talk, reference, seed, case)
                self._try_beyond(talk, reference, seed, case)
        at_own_sizes = not self._strict and self._eager_traffic(reference).at_own_sizes
        rehearsal = None
        if at_own_sizes and case.verdict is None and case.launches:
            with case.phase("rehearsal"):
                rehearsal = rehearse(case, reference, self._workers)
        parts = _to_compile(case, rehearsal, at_own_sizes=at_own_sizes)
        if self._config.compile_gate:
            with case.phase("compile"):
                self._gate.check(case, parts)
        else:
            case.products = {UNKNOWN}
        for part in parts:
            refuse_grids(case, part)
        if case.verdict is not None or self._strict or not self._has_traces(case):
            return
        if not request.fast:
            with case.phase("grown"):
                self._try_grown(reference, seed, case)
                self._turn_loops(reference, seed, case, rehearsal)
        note_precision(case, reference)
        self._replay_all(rehearsal, reference, seed, case)
        if case.product_precision in ("tf32", "half"):
            case.tolerances &= {"measured"}  # the interpreter multiplied in float32

    def _try_later(self, talk: ChildSession, reference: Reference, seed: int, case: Case) -> None:
        """A secret number of further passes, because a candidate may count its calls. Their time is limited,
        but for the first few."""
        draws = self._prepared.draws(reference, seed)
        label, draw = next((one for one in reversed(draws) if one[1] == "own"), draws[-1])
        count = random.Random(derive_seed(seed, "later passes")).randint(_FEW_PASSES, _MANY_PASSES)
        started, later = time.monotonic(), Case(case.request, seed=seed, recorded=case.recorded)
        later.trials_passed = case.trials_passed
        with case.phase("later"):
            trial = self._prepared.trial(reference, seed, label, draw)
            for number in range(count):
                is_late = number >= _FEW_PASSES and time.monotonic() - started > _MOST_LATER_S
                if is_late or not self._try(talk, reference, trial, later):
                    break
                later.trials_passed += 1
        case.recorded = later.recorded
        if later.verdict is Verdict.WRONG:
            case.note("changes_with_calls", later.detail)
            case.fail(Verdict.HACKED, "its outputs change with the number of calls")
        else:
            case.adopt(later)

    def _try_grown(self, reference: Reference, seed: int, case: Case) -> None:
        """Run once more at each of the sizes that `scaled_sizes.py` names. Only wrong outputs count there,
        whatever rounding comes to in longer rows. A run that takes too long counts for nothing, and a finding
        says so. A fault at sizes in an order that real sizes never have is a finding, and counts if it is
        there in their order, too."""
        asks = any(word in case.source for word in (_TUNED, _PROCESSORS))
        self._try_sizes(
            [*(self._grown_sizes(reference) or (reference.sizes,) * asks)],
            _MOST_GROWN_S,
            reference,
            seed,
            case,
        )

    def _turn_loops(self, reference: Reference, seed: int, case: Case, rehearsal: Rehearsal | None) -> None:
        """Run at larger sizes what turned less so far than at the problem's own sizes. What still turns less
        is a finding."""
        if case.verdict is not None or rehearsal is None:
            return
        needed = missing(rehearsal.turns, case.turns)
        tried = turning_sizes(reference) if needed else []
        sources = [resize(reference.problem, sizes).source for sizes in tried]
        probed = run_without_data(case, reference, sources, self._workers) if tried else ""
        if not isinstance(probed, str):
            passes = [turns_of(one.turns, probed.kernels, one.distinct) for one in probed.passes]
            runs = [tried[place] for place in covering(needed, passes)]
            self._try_sizes(runs, _MOST_TURNING_S, reference, seed, case)
        if case.verdict is None and (left := missing(needed, case.turns)):
            name, turns = next(iter(left.items()))
            case.note(
                NOT_EXERCISED,
                f"{name} has {turns} or more turns at the problem's own sizes, and {case.turns.get(name, 0)} "
                f"at the sizes that were judged ({len(left)} in all)",
            )

    def _try_sizes(
        self, runs: list[Sizes], most_s: float, reference: Reference, seed: int, case: Case
    ) -> None:
        before = reference.problem.constants | reference.sizes
        draws = self._prepared.draws(reference, seed)
        label, draw = draws[-1]
        for number, sizes in enumerate(runs):
            changed = [f"{name}={size}" for name, size in sizes.items() if size != before.get(name)]
            where = [f"at {', '.join(changed)}"] if changed else []
            try:
                larger = self._prepared.reference(case.request.model_copy(update={"sizes": sizes}))
                trial = self._prepared.trial(larger, seed, label, draw)
                own = self._prepared.trial(larger, seed, draws[0][0], "own")
                trials = [loose(one) for one in (trial, own)][not trial.is_usual or draw == "own" :]
            except NotAProblem:
                continue
            for way in _ways(case.source, number, is_last=sizes is runs[-1]):
                again = self._try_again(
                    larger, case, *trials, job=way.job, most_s=most_s, configuration=way.configuration
                )
                case.turns = merged(case.turns, again.turns)
                said = ", ".join([*where, *way.where])
                fault = _fault(again) if way.tells(again, case) else None
                if fault is not None:
                    if (ordered := in_order(reference, sizes)) is not None:
                        case.note("narrow_domain", f"{again.detail} ({said})")
                        runs.append(ordered)
                        break
                    case.fail(fault, f"{again.detail} ({said})", again.line)
                if again.verdict is Verdict.TIMED_OUT:
                    case.note("not_grown", f"it took more than {most_s:g} s {said}")
                # A slow configuration does not stop the search.
                is_slow = again.verdict is Verdict.TIMED_OUT and way.configuration is None
                if case.verdict is not None or is_slow:
                    return

    def _grown_sizes(self, reference: Reference) -> tuple[Sizes, ...]:
        if reference.key not in self._grown:
            keep(self._grown, reference.key, grown_sizes(reference), KEPT_PROBLEMS)
        return self._grown[reference.key]

    def _replay_all(self, rehearsal: Rehearsal | None, reference: Reference, seed: int, case: Case) -> None:
        for recorded in case.to_replay():
            if case.verdict is not None or not self._replay(recorded, rehearsal, reference, seed, case):
                return

    def _replay(
        self,
        recorded: Recorded,
        rehearsal: Rehearsal | None,
        reference: Reference,
        seed: int,
        case: Case,
    ) -> bool:
        """Whether what was recorded is honest work; what counts is weighed."""
        ruling, counted = self._look_at(
            recorded, reference, self._unseen(reference, seed, recorded, case), case
        )
        if ruling.detail == NOT_NEEDED:
            # The inputs may leave its kernels nothing to do: no negative number is above a threshold.
            own = self._unseen(reference, seed, recorded, case, draw="own")
            ruling, counted = self._look_at(recorded, reference, own, case)
        if self._is_excused(ruling, recorded, reference, seed, case):
            return True
        case.adopt(ruling)
        if counted is not None:
            works = [Work(**one.model_dump()) for one in counted.works]
            eager, gpu = self._eager_traffic(reference), self._config.predict_gpu
            if rehearsal is not None:
                check_at_own_sizes(case, rehearsal, eager, gpu)
            weigh(case, works_at_own_sizes(works, eager, rehearsal, gpu, ran_as(case)), eager, gpu)
        return case.verdict is None

    def _look_at(
        self, recorded: Recorded, reference: Reference, unseen: Unseen, case: Case
    ) -> tuple[Ruling, Replayed | None]:
        """The ruling on a recorded pass and, if it is honest and counts, its measured work."""
        ruling, counted = Ruling(), None
        with (
            case.phase("replay"),
            self._workers.open_child("replay") as talk,
            ReplayCheck(case, ruling, recorded, reference, unseen, talk, self._workers) as witness,
        ):
            if witness.is_convinced() and case.is_measured(recorded):
                counted = witness.measure(Replayed, self._workers.draw)
        return ruling, counted

    def _eager_traffic(self, reference: Reference) -> EagerTraffic:
        if reference.key not in self._eager:
            keep(self._eager, reference.key, count_eager(reference), KEPT_PROBLEMS)
        return self._eager[reference.key]


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to run a candidate at grown sizes."""

    job: str = "runner"
    configuration: int | None = None
    """The place of another configuration of its autotuners."""
    where: tuple[str, ...] = ()

    def tells(self, again: Case, case: Case) -> bool:
        """Whether what comes of it is the candidate's fault: an autotuner leaves out configurations that
        fail, and a GPU of one multiprocessor, which there is not, changes how programs share work only."""
        if self.configuration is not None:
            return again.verdict is Verdict.WRONG
        is_alike = len(again.launches) == len(case.launches) and all(all(one.grid) for one in again.launches)
        return is_alike or self.job == "runner"


def _ways(source: str, number: int, *, is_last: bool) -> list[_Way]:
    """At the sizes of this number."""
    found = [_Way()]
    if _TUNED in source:
        where = ("with another configuration of its autotuner",)
        found.append(_Way(configuration=-1 - number, where=where))
    if _PROCESSORS in source and is_last:
        where = ("where a program for each multiprocessor has several turns",)
        found.append(_Way("runner_on_one_processor", where=where))
    return found


def _fault(again: Case) -> Verdict | None:
    is_fault = again.verdict is Verdict.WRONG or (again.verdict is Verdict.CRASHED and again.line)
    return again.verdict if is_fault else None


def _to_compile(case: Case, rehearsal: Rehearsal | None, *, at_own_sizes: bool) -> list[CompileUnit]:
    """The launches that ran and those of the dry run. A kernel that is launched at the problem's own sizes is
    compiled whole for these. If the candidate failed, the kernel need only be Triton, where there are such
    sizes at all."""
    passes = [(one.kernels, one.launches) for one in case.recorded]
    if (case.kernels, case.launches) not in passes:
        passes.append((case.kernels, case.launches))  # of a pass that raised
    whole = not at_own_sizes if case.verdict is not None else not _launches_all(rehearsal, passes)
    parts = [CompileUnit(*one, whole=whole) for one in passes]
    if rehearsal is not None:
        parts.append(CompileUnit(rehearsal.kernels, rehearsal.distinct, whole=True, where=_AT_OWN_SIZES))
    return parts


def _launches_all(
    rehearsal: Rehearsal | None, passes: Sequence[tuple[Sequence[Kernel], Sequence[Launch]]]
) -> bool:
    """Whether each kernel of these passes is launched at the problem's own sizes too."""
    if rehearsal is None:
        return False
    there = {_place(rehearsal.kernels[one.launch]) for one in rehearsal.distinct}
    return all(_place(kernels[one.launch]) in there for kernels, launches in passes for one in launches)


def _place(kernel: Kernel) -> tuple[str, int]:
    return kernel.name, kernel.line
