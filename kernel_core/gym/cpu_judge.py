"""The judge where there is no GPU: kernels are interpreted, compiled for one, and their times predicted."""

from __future__ import annotations

from collections import OrderedDict

from kernel_core.config import GymConfig
from kernel_core.gym.bench import Bench
from kernel_core.gym.case import Case
from kernel_core.gym.gate import CompileGate
from kernel_core.gym.judge import KEPT_PROBLEMS, Judge, keep
from kernel_core.gym.own_sizes import rehearse, works_at_own_sizes
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.reference import Reference
from kernel_core.gym.traffic import EagerTraffic, count_eager
from kernel_core.gym.witness import replay_counts, weigh
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
        if self._config.compile_gate and case.launches:
            self._gate.check(case)
        if case.verdict is not None or self._strict or not self._has_trace(case):
            return
        unseen = self._unseen(reference, seed, "replay", case)
        with self._bench.converse("replay") as talk:
            works = replay_counts(case, reference, unseen, talk)
        if works is not None:
            eager, gpu = self._eager_traffic(reference), self._config.predict_gpu
            with case.phase("rehearsal"):
                rehearsal = rehearse(case, reference, self._bench) if eager.at_own_sizes else None
            weigh(case, works, works_at_own_sizes(works, eager, rehearsal, gpu), eager, gpu)

    def _eager_traffic(self, reference: Reference) -> EagerTraffic:
        if reference.key not in self._eager:
            keep(self._eager, reference.key, count_eager(reference), KEPT_PROBLEMS)
        return self._eager[reference.key]
