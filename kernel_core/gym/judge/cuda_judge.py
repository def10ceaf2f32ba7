"""The judge of one GPU: kernels run as they are, and their times are measured.

Compilation needs no GPU and overlaps; correctness shares the GPU; timing has it alone. What a problem costs
(inputs, expected outputs, the reference's time) is paid once for all its candidates.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.channel.compiled_products import UNKNOWN
from kernel_core.gym.channel.cuda_arena import ArenaPool, TooLittleMemory
from kernel_core.gym.channel.decoy_thresholds import library_works
from kernel_core.gym.channel.messages import BuildFailed, ReplayedOnDevice, Sources
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.cuda_problem_cache import CudaPrepared
from kernel_core.gym.judge.extension_check import Builder
from kernel_core.gym.judge.judge import Judge
from kernel_core.gym.judge.precision import note_precision
from kernel_core.gym.judge.replay_check import ReplayCheck, TakeGpu
from kernel_core.gym.judge.replay_cost import ReplayCost, contradicted, others_matter
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.prediction.own_work_share import weigh_times
from kernel_core.gym.timing.baseline_choice import chosen_row, with_repeated
from kernel_core.gym.timing.baseline_store import Baselines, MeasuredBaseline
from kernel_core.gym.timing.baseline_timer import HEAVY_BYTES, ReferenceClock
from kernel_core.gym.timing.nvml import NvmlDevice, describe_platform
from kernel_core.gym.timing.retiming import Stopwatch
from kernel_core.gym.timing.timed_batch import arena_bytes
from kernel_core.gym.timing.timing_stats import Clocked, ReplayTime
from kernel_core.gym.verdict.case import Case, Ruling
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.gym.workers.child import ChildSession
from kernel_core.gym.workers.gpu_locks import Drawn, Room
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import Evaluation
from kernel_core.store import Store

_SMALL_BYTES, _VERIFIED_OF_SMALL = 64 << 20, 6
"""For small trials more timed calls are verified."""
_CONTEXT_BYTES, _CONTEXT_SHARE = 12 << 30, 1 / 6
"""All processes' contexts together; of a small GPU at most this share."""
_ROOM_SHARE, _TORCH_SHARE, _KEPT_SHARE = 0.62, 0.38, 0.08
"""Shares of the rest of the GPU's memory: for candidates, for this process, which makes one trial at a time,
and within it for prepared trials that are kept."""
_TORCH_SHARE_ALONE = 0.9
_FOOTPRINT, _FOOTPRINT_OF_ECHOES = 0.6, 2.1
"""Memory that a pass may need beside its arena and its weights, in units of inputs and outputs. Where the
library works too, a replay keeps copies of inputs, outputs and launch arguments. A pass that needs more is
repeated with the GPU to itself."""
_MOST_BUILDS = 8


class CudaJudge(Judge):
    """Threads may evaluate at once; each candidate still meets one judge, one GPU and one clock."""

    _measured_label = "timed 0"
    """The label of a hidden trial among the timed calls, with the problem's own draws. The timed calls come
    after the recording of the replayed pass."""

    def __init__(self, config: GymConfig, workers: Workers, builder: Builder, store: Store | None) -> None:
        self._gpu = NvmlDevice()
        total_bytes = self._gpu.total_bytes
        usable_bytes = total_bytes - min(_CONTEXT_BYTES, int(_CONTEXT_SHARE * total_bytes))
        prepared = CudaPrepared(config, workers, int(_KEPT_SHARE * usable_bytes))
        super().__init__(config, workers, prepared)
        self._prepared: CudaPrepared = prepared
        self._builder = builder
        self.platform = describe_platform(self._gpu)
        self._stopwatch = Stopwatch(config, workers, self._gpu)
        self._torch_share = _TORCH_SHARE * usable_bytes / total_bytes
        # Memory that torch's cache holds is missing to the candidates.
        torch.cuda.set_per_process_memory_fraction(self._torch_share)
        self._room = Room(int(_ROOM_SHARE * usable_bytes))
        self._arenas = ArenaPool()
        baselines = Baselines(store, self.platform, config.compile_mode)
        self._reference_clock = ReferenceClock(
            config, workers, self._stopwatch, baselines, self._room, self._arenas
        )

    def evaluate(self, request: JudgeRequest, seed: int) -> Evaluation:
        """See `Judge`. A candidate that finds the memory full, maybe of others' work, is judged again: first
        when kept trials are forgotten, then with the GPU to itself.

        Candidates without a seed of their own share their problem's seed for a while.
        """
        for _ in range(2):
            with contextlib.suppress(torch.cuda.OutOfMemoryError, TooLittleMemory):
                return super().evaluate(request, seed)
            self._prepared.forget_trials()
            torch.cuda.empty_cache()
        with self._room.take(self._room.num_bytes):
            self._prepared.forget_trials()
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(_TORCH_SHARE_ALONE)
            try:
                return super().evaluate(request, seed)
            except (torch.cuda.OutOfMemoryError, TooLittleMemory) as error:
                raise GymUnavailable(
                    f"the GPU has too little memory for {request.problem.id} ({error}); use one with more, "
                    "or smaller sizes (--set)"
                ) from error
            finally:
                torch.cuda.empty_cache()
                torch.cuda.set_per_process_memory_fraction(self._torch_share)

    def _decide(self, request: JudgeRequest, seed: int, case: Case) -> None:
        with case.phase("expected"):
            reference = self._prepared.reference(request)
            if request.seed is None:
                seed = self._prepared.group_seed(reference)
            like = self._prepared.outline(reference, seed)
            has_fixed_sizes = self._prepared.has_fixed_sizes(reference, seed, _hidden_labels(like))
            is_timed = has_fixed_sizes and request.timing
        eager: MeasuredBaseline | None = None
        if is_timed:
            with case.phase("baseline"):
                eager = self._reference_clock.eager(reference, like)
        try:
            self._decide_in_room(reference, like, eager, seed, case)
        finally:
            self._clear_away(case)
        if case.ran_out_of_memory and not self._room.is_all_mine():
            raise TooLittleMemory(case.detail)

    def _decide_in_room(
        self, reference: Reference, like: Trial, eager: MeasuredBaseline | None, seed: int, case: Case
    ) -> None:
        case.arena_bytes = arena_bytes(like)
        case.needs_bytes = self._needed_bytes(reference, like, _FOOTPRINT)
        is_heavy = reference.weight_bytes > HEAVY_BYTES
        if is_heavy:
            self._take_room(case)
        with self._reference_clock.presence.running(reference.key):
            clocked = self._try_and_clock(reference, like, eager, seed, case)
        if not is_heavy:
            # While the trace is compiled again, other candidates may have the memory.
            self._clear_away(case)
        if any(library_works(recorded.trace) for recorded in case.recorded):
            case.needs_bytes = self._needed_bytes(reference, like, _FOOTPRINT_OF_ECHOES)
        if case.verdict is not None:
            return
        replayed: ReplayTime | None = None
        if self._strict:
            case.products = {UNKNOWN}  # nothing is replayed, so nothing is compiled here
        else:
            with case.phase("replay"):
                replayed = self._replay_all(reference, clocked, seed, case)
        note_precision(case, reference)
        if replayed is None and not self._strict:
            return
        if clocked is not None and eager is not None:
            self._clear_away(case)  # the compilers of baselines may have the memory
            self._conclude(clocked, eager, replayed, reference, like, case)

    def _conclude(
        self,
        clocked: Clocked,
        eager: MeasuredBaseline,
        replayed: ReplayTime | None,
        reference: Reference,
        like: Trial,
        case: Case,
    ) -> None:
        """Set the times that count, against the baseline at the candidate's precision."""
        with case.phase("baselines"):
            rows = self._reference_clock.rows(reference, like)
        case.baselines = with_repeated(rows, has_products=reference.has_float32_products)
        chosen = chosen_row(case.baselines, self._config.baseline, case.product_precision)
        self._stopwatch.conclude(clocked, eager.overhead_ms, chosen, reference, like, replayed, case)

    def _try_and_clock(
        self, reference: Reference, like: Trial, eager: MeasuredBaseline | None, seed: int, case: Case
    ) -> Clocked | None:
        """Every trial, then the clock, where there is a baseline to compare with, and inputs beyond the
        contract."""
        clocked: Clocked | None = None
        with self._runner(case, reference) as talk:
            if self._try_all(talk, reference, seed, case) and eager is not None:
                self._reference_clock.begin_others(reference, like)
                hidden = self._hidden_trials(reference, like, seed, case)
                clocked = self._stopwatch.clock(talk, reference, like, hidden, case, eager)
            if not self._strict:
                self._try_beyond(talk, reference, seed, case)
        return clocked

    @contextlib.contextmanager
    def _runner(self, case: Case, reference: Reference, job: str = "runner") -> Iterator[ChildSession]:
        """See `Judge`; it may ask for builds."""
        with super()._runner(case, reference, job) as talk:
            talk.build_with(functools.partial(self._build, case))
            yield talk

    def _build(self, case: Case, sources: Sources) -> tuple[dict[str, Any], bytes]:
        """The answer to a candidate's process about a build that it requested."""
        if len(case.images) >= _MOST_BUILDS:
            return BuildFailed(
                failed=f"more than {_MOST_BUILDS} extensions", part="", line=0
            ).model_dump(), b""
        with case.phase("build"):
            outcome = self._builder.build(sources)
        if isinstance(outcome, BuildFailed):
            return outcome.model_dump(), b""
        case.images[outcome.name] = outcome.image
        case.products |= outcome.products
        return {"built": outcome.name}, outcome.library

    def _take_room(self, case: Case) -> None:
        """Memory to work in, until `_clear_away`."""
        with case.phase("room"):
            case.room.enter_context(self._room.take(case.needs_bytes))
        self._arenas.shrink(self._room.free_bytes)

    def _lay_table(self, case: Case) -> None:
        """See `Judge`: room, and an arena, until `_clear_away`."""
        if case.arena is None:
            self._take_room(case)
            with self._workers.share():
                case.arena = case.room.enter_context(self._arenas.lend(case.arena_bytes))

    def _clear_away(self, case: Case) -> None:
        case.arena = None
        case.room.close()

    @contextlib.contextmanager
    def _alone(self, case: Case, *, still: bool) -> Iterator[Drawn]:
        with self._workers.alone(still=still) as drawn, case.phase("replay alone"):
            yield drawn

    def _replay_all(
        self, reference: Reference, clocked: Clocked | None, seed: int, case: Case
    ) -> ReplayTime | None:
        """The cost of the work on the problem's own draws; None when the work is not the candidate's."""
        time: ReplayTime | None = None
        for recorded in case.to_replay() if self._has_traces(case) else ():
            replayed = self._replay(recorded, reference, clocked, seed, case)
            if replayed is None:
                return None
            if case.is_measured(recorded) and not case.is_of_unknown_provenance:
                weigh_times(case, replayed.works)
                time = replayed.time
            if case.verdict is not None:
                return None
        return None if case.is_of_unknown_provenance else time

    def _replay(
        self, recorded: Recorded, reference: Reference, clocked: Clocked | None, seed: int, case: Case
    ) -> ReplayCost | None:
        """The works with their device times, where they are measured; None when they are not the
        candidate's."""
        unseen = self._unseen(reference, seed, recorded, case)
        claim = clocked if recorded.trials_of("own") else None
        for fresh in (False, True):
            ruling = Ruling()
            with self._workers.open_child("replay", fresh=fresh) as talk:
                with ReplayCheck(case, ruling, recorded, reference, unseen, talk, self._workers) as witness:
                    cost: ReplayCost | None = None
                    if witness.is_convinced():
                        cost = (
                            self._measure(witness, claim, case)
                            if case.is_measured(recorded)
                            else ReplayCost()
                        )
                if cost is not None and not case.images:  # libraries stay loaded in a process
                    talk.rest(self._workers.share)
            if self._is_excused(ruling, recorded, reference, seed, case):
                return ReplayCost()
            # A candidate is not blamed for the leftovers of another candidate's kernels.
            if cost is not None or talk.is_fresh or fresh:
                case.adopt(ruling)
                return cost
        return None

    def _measure(self, witness: ReplayCheck, clocked: Clocked | None, case: Case) -> ReplayCost | None:
        """Measure beside other work, which can only make times longer. Where that decides for or against the
        candidate, measure again alone. Where the times still contradict the claim of the candidate's process,
        measure once more while no process starts."""
        alone = functools.partial(self._alone, case)
        turns: tuple[tuple[TakeGpu, Callable[[Clocked | None, ReplayCost], bool]], ...] = (
            (self._workers.draw, others_matter),
            (functools.partial(alone, still=False), contradicted),
            (functools.partial(alone, still=True), contradicted),
        )
        cost = ReplayCost()
        for turn, is_in_doubt in turns:
            answer = witness.measure(ReplayedOnDevice, turn)
            if answer is None:
                return None
            cost = ReplayCost(answer.works, is_same=clocked is None or witness.gave(clocked.outputs))
            if not is_in_doubt(clocked, cost):
                break
        return cost

    def _hidden_trials(self, reference: Reference, like: Trial, seed: int, case: Case) -> list[Trial]:
        """The trials that are compared among the timed calls. They look like all other calls there."""
        with case.phase("expected"):
            labels = _hidden_labels(like)
            return [self._prepared.trial(reference, seed, label, "own") for label in labels]

    def _needed_bytes(self, reference: Reference, like: Trial, footprint: float) -> int:
        """Memory for a running candidate: its arena, its own tensors, and four copies of the weights. Weights
        are handed over, constructed by the candidate, and recorded in this trial and in the one before."""
        wanted = arena_bytes(like) + int(footprint * like.num_bytes) + 4 * reference.weight_bytes
        return self._room.below_all(wanted)


def _hidden_labels(like: Trial) -> list[str]:
    """The labels of the trials that are compared among the timed calls."""
    return [f"timed {i}" for i in range(_VERIFIED_OF_SMALL if like.num_bytes <= _SMALL_BYTES else 1)]
