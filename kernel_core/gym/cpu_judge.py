"""The judge where there is no GPU: kernels are interpreted, compiled for one, and their times predicted."""

from __future__ import annotations

from collections import OrderedDict

from kernel_core.config import GymConfig
from kernel_core.gym.bench import Bench
from kernel_core.gym.case import Case
from kernel_core.gym.claims import Replayed
from kernel_core.gym.gate import CompileGate, refuse_grids
from kernel_core.gym.judge import KEPT_PROBLEMS, Judge, keep
from kernel_core.gym.own_sizes import Rehearsal, check_at_own_sizes, ran_as, rehearse, works_at_own_sizes
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.recorded import Recorded
from kernel_core.gym.reference import Reference
from kernel_core.gym.traffic import EagerTraffic, count_eager
from kernel_core.gym.weighing import weigh
from kernel_core.gym.witness import Witness
from kernel_core.gym.work import Work
from kernel_core.gym.zygote import Zygote


class CpuJudge(Judge):
    """A kernel that does not compile comes before anything that happened while running."""

    def __init__(self, config: GymConfig, bench: Bench, compilers: Zygote, base: str) -> None:
        super().__init__(config, bench)
        self._gate = CompileGate(compilers, base, config.predict_gpu)
        self._eager: OrderedDict[str, EagerTraffic] = OrderedDict()

    def _decide(self, request: JudgeRequest, seed: int, case: Case) -> None:
        reference = self._reference(request)
        with self._runner(case) as talk:
            self._try_all(talk, reference, seed, case)
        if self._config.compile_gate:
            self._gate.check(case)
        if case.verdict is not None or self._strict or not self._has_traces(case):
            return
        self._replay_all(self._rehearse(reference, case), reference, seed, case)

    def _rehearse(self, reference: Reference, case: Case) -> Rehearsal | None:
        """Its host code at the problem's own sizes, where each launch must be one that the GPU takes."""
        if not self._eager_traffic(reference).at_own_sizes:
            return None
        with case.phase("rehearsal"):
            rehearsal = rehearse(case, reference, self._bench)
        if rehearsal is not None:
            refuse_grids(case, rehearsal.distinct, "at the problem's own sizes: ")
            if self._config.compile_gate and case.verdict is None:
                self._gate.check_unseen(case, rehearsal.kernels, rehearsal.distinct)
        return rehearsal

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
        unseen = self._unseen(reference, seed, recorded, case)
        with (
            self._bench.converse("replay") as talk,
            Witness(case, recorded, reference, unseen, talk, self._bench) as witness,
        ):
            if not witness.is_convinced():
                return False
            counted = witness.measure(Replayed, self._bench.draw) if case.is_measured(recorded) else None
        if counted is not None:
            works = [Work(**one.model_dump()) for one in counted.works]
            eager, gpu = self._eager_traffic(reference), self._config.predict_gpu
            if rehearsal is not None:
                check_at_own_sizes(case, rehearsal, eager, gpu)
            weigh(case, works_at_own_sizes(works, eager, rehearsal, gpu, ran_as(case)), eager, gpu)
        return case.verdict is None

    def _eager_traffic(self, reference: Reference) -> EagerTraffic:
        if reference.key not in self._eager:
            keep(self._eager, reference.key, count_eager(reference), KEPT_PROBLEMS)
        return self._eager[reference.key]
