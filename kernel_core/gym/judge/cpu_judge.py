"""The judge where there is no GPU: kernels are interpreted, compiled for one, and their times predicted."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Sequence

from kernel_core.config import GymConfig
from kernel_core.gym.channel.compiled_products import UNKNOWN
from kernel_core.gym.channel.messages import Kernel, Launch, Replayed
from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.channel.work import Work
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.compile_check import CompileGate, CompileUnit, refuse_grids
from kernel_core.gym.judge.judge import NO_OWN_KERNEL, Judge
from kernel_core.gym.judge.precision import note_precision
from kernel_core.gym.judge.problem_cache import KEPT_PROBLEMS, Prepared, keep
from kernel_core.gym.judge.replay_check import NOT_NEEDED, ReplayCheck, Unseen
from kernel_core.gym.judge.scaled_runs import TUNED, ScaledRuns
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.small_sizes import with_other_sizes, with_small_sizes
from kernel_core.gym.prediction.full_size import (
    Rehearsal,
    check_at_own_sizes,
    ran_as,
    rehearse,
    works_at_own_sizes,
)
from kernel_core.gym.prediction.own_work_share import weigh
from kernel_core.gym.prediction.roofline import EagerTraffic, count_eager
from kernel_core.gym.sandbox.fork_server import ForkServer
from kernel_core.gym.verdict.case import Case, Ruling
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.gym.workers.child import ChildSession
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import Evaluation, NoCandidate, Problem, Verdict

_AT_OWN_SIZES = "at the problem's own sizes: "
_OTHER_CONFIGURATIONS = (-1, -2)
"""The last configurations of an autotuner, which are the smallest of most."""
_FEW_PASSES, _MANY_PASSES, _MOST_LATER_S = 3, 9, 0.5
"""Passes after the trials, and the seconds after which those beyond the first few are left out."""


class CpuJudge(Judge):
    """A kernel that does not compile comes before anything that happened while running."""

    def __init__(self, config: GymConfig, workers: Workers, compilers: ForkServer, base: str) -> None:
        super().__init__(config, workers, Prepared(config, workers))
        self._gate = CompileGate(compilers, base, config.predict_gpu)
        self._eager: OrderedDict[str, EagerTraffic] = OrderedDict()
        self._scaled = ScaledRuns(self._prepared, workers, self._try_again)

    def evaluate(self, request: JudgeRequest, seed: int) -> Evaluation:
        """See `Judge`. A problem without sizes for a CPU has them by a rule, and a candidate that is not
        correct there is judged at others: see `small_sizes.py`."""
        if request.sizes is not None or isinstance(request.candidate, NoCandidate):
            return super().evaluate(request, seed)
        problem = with_small_sizes(request.problem)
        chosen = super().evaluate(request.model_copy(update={"problem": problem}), seed)
        launched = self._where_launched(request, problem, seed, chosen)
        others = [launched] if launched else with_other_sizes(problem, chosen.verdict)
        seconds = chosen.seconds
        for other in others:
            again = super().evaluate(request.model_copy(update={"problem": other}), seed)
            seconds += again.seconds
            if again.verdict is Verdict.CORRECT:
                chosen = again
            if again.verdict is not Verdict.TIMED_OUT:
                break
        return chosen.model_copy(update={"seconds": seconds})

    def _where_launched(
        self, request: JudgeRequest, problem: Problem, seed: int, evaluation: Evaluation
    ) -> Problem | None:
        """Return the problem at the smallest sizes where a candidate that leaves small inputs to the library
        launches a kernel; None for any other, and for a problem that names its sizes."""
        rules = {finding.rule for finding in evaluation.findings}
        if request.problem.cpu_constants or NO_OWN_KERNEL not in rules:
            return None
        case = Case(request.model_copy(update={"problem": problem}), seed=seed)
        sizes = self._scaled.launching_sizes(self._prepared.reference(case.request), case)
        return None if sizes is None else problem.model_copy(update={"cpu_constants": sizes})

    def _decide(self, request: JudgeRequest, seed: int, case: Case) -> None:
        """With the first configuration of its autotuners, or with others where that one exceeds the GPU: an
        autotuner leaves it out."""
        known = tuple(case.findings)
        self._decide_configured(request, seed, case)
        for place in _OTHER_CONFIGURATIONS if TUNED in case.code else ():
            if not case.exceeds_gpu:
                break
            case.begin_again(place, known)
            self._decide_configured(request, seed, case)

    def _decide_configured(self, request: JudgeRequest, seed: int, case: Case) -> None:
        reference = self._prepared.reference(request)
        with self._runner(case, reference) as talk:
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
                self._scaled.grow(reference, seed, case)
                if rehearsal is not None:
                    self._scaled.turn_loops(rehearsal.turns, reference, seed, case)
        note_precision(case, reference)
        self._replay_all(rehearsal, reference, seed, case)
        if case.product_precision in ("tf32", "half"):
            case.tolerances &= {"measured"}  # the interpreter multiplied in float32

    def _try_later(self, talk: ChildSession, reference: Reference, seed: int, case: Case) -> None:
        """A secret number of further passes, because a candidate may count its calls. Their time is limited,
        but for the first few."""
        draws = self._prepared.draws(reference, seed)
        label, draw = next((labelled for labelled in reversed(draws) if labelled[1] == "own"), draws[-1])
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

    def _replay_all(self, rehearsal: Rehearsal | None, reference: Reference, seed: int, case: Case) -> None:
        for recorded in case.to_replay():
            if case.verdict is not None or not self._replay(recorded, rehearsal, reference, seed, case):
                return

    def _replay(
        self, recorded: Recorded, rehearsal: Rehearsal | None, reference: Reference, seed: int, case: Case
    ) -> bool:
        """Return True if what was recorded is honest work; weigh what counts."""
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
            works = [Work(**work.model_dump()) for work in counted.works]
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
            self._workers.open_child("replay", weight_bytes=reference.weight_bytes) as talk,
            ReplayCheck(case, ruling, recorded, reference, unseen, talk, self._workers) as witness,
        ):
            if witness.is_convinced() and case.is_measured(recorded):
                counted = witness.measure(Replayed, self._workers.draw)
        return ruling, counted

    def _eager_traffic(self, reference: Reference) -> EagerTraffic:
        if reference.key not in self._eager:
            keep(self._eager, reference.key, count_eager(reference), KEPT_PROBLEMS)
        return self._eager[reference.key]


def _to_compile(case: Case, rehearsal: Rehearsal | None, *, at_own_sizes: bool) -> list[CompileUnit]:
    """The launches that ran and those of the dry run. A kernel that is launched at the problem's own sizes is
    compiled whole for these. If the candidate failed, the kernel need only be Triton, where there are such
    sizes at all."""
    passes = [(recorded.kernels, recorded.launches) for recorded in case.recorded]
    if (case.kernels, case.launches) not in passes:
        passes.append((case.kernels, case.launches))  # of a pass that raised
    whole = not at_own_sizes if case.verdict is not None else not _launches_all(rehearsal, passes)
    parts = [CompileUnit(kernels, launches, whole=whole) for kernels, launches in passes]
    if rehearsal is not None:
        parts.append(CompileUnit(rehearsal.kernels, rehearsal.distinct, whole=True, where=_AT_OWN_SIZES))
    return parts


def _launches_all(
    rehearsal: Rehearsal | None, passes: Sequence[tuple[Sequence[Kernel], Sequence[Launch]]]
) -> bool:
    """Return True if each kernel of these passes is launched at the problem's own sizes too."""
    if rehearsal is None:
        return False
    there = {_place(rehearsal.kernels[launch.launch]) for launch in rehearsal.distinct}
    return all(_place(kernels[launch.launch]) in there for kernels, launches in passes for launch in launches)


def _place(kernel: Kernel) -> tuple[str, int]:
    return kernel.name, kernel.line
