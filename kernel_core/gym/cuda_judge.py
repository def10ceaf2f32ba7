"""The judge of one GPU: kernels run as they are, and their times are measured.

Compilation needs no GPU and overlaps; correctness shares the GPU; timing has it alone. What a problem costs
(inputs, expected outputs, the reference's time) is paid once for all its candidates.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable, NotAProblem
from kernel_core.gym.bench import Bench
from kernel_core.gym.case import Case
from kernel_core.gym.claims import Failure, Loaded, NotLoaded
from kernel_core.gym.clock import Clocked, clocks_agree, settle, summarize
from kernel_core.gym.device_memory import ArenaPool
from kernel_core.gym.inputs import Draw
from kernel_core.gym.judge import KEPT_PROBLEMS, Judge, keep
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.reference import Reference, Trial, outline
from kernel_core.gym.runs import Answer, Conversation, Died, load_header
from kernel_core.gym.timed_calls import arena_bytes, clock_calls
from kernel_core.gym.turns import Room
from kernel_core.gym.witness import replay_times, weigh_times
from kernel_core.records import Evaluation, Timing, Verdict

_SMALL_BYTES, _LARGE_BYTES = 64 << 20, 1 << 30
"""Inputs of large trials are not kept but drawn again; of small ones more timed calls are verified."""
_VERIFIED_OF_SMALL = 6
_KEPT_SHARE, _WAITING_SHARE, _WORKING_SHARE = 0.15, 0.28, 0.35
"""Of the GPU's memory: for trials that are kept; for inputs that lie ready for candidates that still
compile; for those that work. The rest is for everybody's contexts."""
_FOOTPRINT = 3
"""Memory that one candidate at work may need beside its arena, in units of its inputs and outputs."""
_CLOCKINGS = 3
_GROUP = 16
"""Candidates of one problem that share secret inputs."""
_OUT_OF_MEMORY = "OutOfMemoryError"
_AS_CANDIDATE = "\n\nModelNew = Model\n"


class _TooLittleMemory(Exception):
    """A process found the GPU's memory full, maybe of others' work."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The reference's own time, and what the judge's clock sees beside it."""

    timing: Timing
    overhead_ms: float


class CudaJudge(Judge):
    """Threads may evaluate at once; each candidate still meets one judge, one GPU and one clock."""

    def __init__(self, config: GymConfig, bench: Bench) -> None:
        super().__init__(config, bench)
        total_bytes = torch.cuda.get_device_properties(0).total_memory
        self._waiting = Room(int(_WAITING_SHARE * total_bytes))
        self._working = Room(int(_WORKING_SHARE * total_bytes))
        self._arenas = ArenaPool(int(_WAITING_SHARE * total_bytes))
        self._kept_bytes = int(_KEPT_SHARE * total_bytes)
        self._outlines: OrderedDict[str, Trial] = OrderedDict()
        self._baselines: OrderedDict[str, Baseline] = OrderedDict()
        self._baseline_lock = threading.Lock()
        self._draws: OrderedDict[str, list[tuple[str, Draw]]] = OrderedDict()
        self._groups: OrderedDict[str, list[int]] = OrderedDict()

    def evaluate(self, request: JudgeRequest, seed: int) -> Evaluation:
        """See `Judge`. Whoever finds the memory full is judged again with nobody beside it.

        Candidates without a seed of their own share their problem's for a while.
        """
        with contextlib.suppress(torch.cuda.OutOfMemoryError, _TooLittleMemory):
            return super().evaluate(request, seed)
        torch.cuda.empty_cache()
        with self._waiting.take(self._waiting.num_bytes), self._working.take(self._working.num_bytes):
            self._trials.clear()
            torch.cuda.empty_cache()
            try:
                return super().evaluate(request, seed)
            except (torch.cuda.OutOfMemoryError, _TooLittleMemory) as error:
                raise GymUnavailable(
                    f"the GPU has too little memory for {request.problem.id} ({error}); use one with more, "
                    "or smaller sizes (--set)"
                ) from error

    def _decide(self, request: JudgeRequest, seed: int, case: Case) -> None:
        with case.phase("expected"):
            reference = self._reference(request)
            if request.seed is None:
                seed = self._group_seed(reference.key)
            like = self._outline(reference, seed)
        with case.phase("baseline"):
            baseline = self._baseline(reference, like)
        try:
            size = arena_bytes(like)
            with self._waiting.take(size), case.room, self._arenas.lend(size) as case.arena:
                self._decide_in_room(reference, like, baseline, seed, case)
        finally:
            case.keep_memory(())
        if case.ran_out_of_memory and not self._working.is_all_mine():
            raise _TooLittleMemory(case.detail)

    def _decide_in_room(
        self, reference: Reference, like: Trial, baseline: Baseline, seed: int, case: Case
    ) -> None:
        case.footprint = _FOOTPRINT * like.num_bytes
        clocked: Clocked | None = None
        with self._bench.converse("runner") as talk:
            if self._try_all(talk, reference, seed, case):
                clocked = self._clock_candidate(talk, reference, like, seed, case, baseline.overhead_ms)
        # While the trace is compiled again, others may work.
        case.room.close()
        if case.verdict is not None or clocked is None:
            return
        replayed_ms: float | None = None
        if not self._strict:
            with case.phase("replay"):
                replayed_ms = self._replay(reference, seed, case)
            if replayed_ms is None:
                return
        timing, fault = settle(clocked, baseline.overhead_ms, like.num_bytes, replayed_ms)
        if fault:
            case.note("clock_disagrees", fault)
        case.timing, case.reference_timing = timing, baseline.timing

    @contextlib.contextmanager
    def _turn(self, case: Case) -> Iterator[None]:
        """Room to work in, from the first pass to the end; a turn for this pass."""
        case.room.enter_context(self._working.take(case.footprint))
        with self._bench.share():
            yield

    @contextlib.contextmanager
    def _turn_alone(self, case: Case) -> Iterator[None]:
        case.room.enter_context(self._working.take(case.footprint))
        with self._bench.alone(), case.phase("replay alone"):
            yield

    def _replay(self, reference: Reference, seed: int, case: Case) -> float | None:
        """Device time of the replayed trace, in milliseconds; None when the work is not the candidate's."""
        if not self._has_trace(case):
            return None
        # Inputs of a timed call: when the trace was taken, the candidate had not seen them.
        with case.phase("expected"):
            unseen = self._unseen(reference, seed, "timed 0")
        with self._bench.converse("replay") as talk:
            turns = self._turn_alone(case), self._bench.share()
            works = replay_times(case, reference, unseen, talk, turns)
        return weigh_times(case, works) if works is not None else None

    # The reference's time -------------------------------------------------------------------------

    def _baseline(self, reference: Reference, like: Trial) -> Baseline:
        """Measured once, the way a candidate is: in a process of its own, by both clocks."""
        with self._baseline_lock:
            if reference.key not in self._baselines:
                keep(self._baselines, reference.key, self._measure_baseline(reference, like), 1024)
            return self._baselines[reference.key]

    def _measure_baseline(self, reference: Reference, like: Trial) -> Baseline:
        size = arena_bytes(like)
        room, waiting = self._working.take(_FOOTPRINT * like.num_bytes), self._waiting.take(size)
        with waiting, room, self._arenas.lend(size) as bed, self._bench.converse("runner") as talk:
            with self._bench.share():
                header, arena = load_header(reference, reference.source + _AS_CANDIDATE)
            descriptors = (arena.descriptor,)
            answer = talk.ask(header, (Loaded, NotLoaded), descriptors=descriptors, turn=self._bench.share())
            arena.close()
            if not (isinstance(answer, Answer) and isinstance(answer.claim, Loaded)):
                raise self._cannot_time(reference, _say(answer))
            with self._alone(talk):
                clocked = clock_calls(talk, reference, like, [], self._lock, bed)
        if not isinstance(clocked, Clocked):
            raise self._cannot_time(reference, _say(clocked))
        return Baseline(summarize(clocked.times_ms), clocked.overhead_ms)

    def _cannot_time(self, reference: Reference, reason: str) -> Exception:
        if reason.startswith(_OUT_OF_MEMORY):
            return _TooLittleMemory(reason)
        return NotAProblem(f"the reference of {reference.problem.id} cannot be timed: {reason}")

    # Timed calls ----------------------------------------------------------------------------------

    def _clock_candidate(
        self,
        talk: Conversation,
        reference: Reference,
        like: Trial,
        seed: int,
        case: Case,
        overhead_ms: float,
    ) -> Clocked | None:
        """None, and a verdict, when a call fails or a verified output is wrong."""
        count = _VERIFIED_OF_SMALL if like.num_bytes <= _SMALL_BYTES else 1
        with case.phase("expected"):
            _, draw = self._choose_draws(reference, seed)[-1]
            trials = [self._trial(reference, seed, f"timed {i}", draw) for i in range(count)]
        with contextlib.ExitStack() as stack:
            with case.phase("wait to be timed"):
                stack.enter_context(self._alone(talk))
            with case.phase("timed"):
                clocked = self._clock_until_agreed(talk, reference, like, trials, case, overhead_ms)
        match clocked:
            case str():
                case.fail(Verdict.WRONG, f"{clocked} (a timed call)")
            case Died():
                case.fail(Verdict.TIMED_OUT if clocked.timed_out else Verdict.CRASHED, clocked.reason)
            case Failure():
                case.fail(Verdict.CRASHED, f"{clocked.error}: {clocked.message}", clocked.line)
            case Clocked():
                return clocked
        return None

    def _clock_until_agreed(
        self,
        talk: Conversation,
        reference: Reference,
        like: Trial,
        trials: list[Trial],
        case: Case,
        overhead_ms: float,
    ) -> Clocked | str | Died | Failure:
        """The host may be busy when it should look at its clock: only a disagreement that stays counts."""
        assert case.arena is not None
        best: Clocked | None = None
        for _ in range(_CLOCKINGS):
            clocked = clock_calls(talk, reference, like, trials, self._lock, case.arena)
            if not isinstance(clocked, Clocked):
                return clocked
            if best is None or clocked.wall_ms < best.wall_ms:
                best = clocked
            if clocks_agree(best, overhead_ms, like.num_bytes):
                break
        assert best is not None
        return best

    @contextlib.contextmanager
    def _alone(self, talk: Conversation) -> Iterator[None]:
        """The GPU for this candidate alone; waiting for it is not held against the candidate."""
        waiting = time.monotonic()
        with self._bench.alone():
            talk.pause(time.monotonic() - waiting)
            yield

    # What is kept ---------------------------------------------------------------------------------

    def _group_seed(self, key: str) -> int:
        """A secret seed for the next few candidates of a problem."""
        with self._lock:
            seed, uses = self._groups.pop(key, [secrets.randbits(62), 0])
            if uses >= _GROUP:
                seed, uses = secrets.randbits(62), 0
            keep(self._groups, key, [seed, uses + 1], KEPT_PROBLEMS)
            return seed

    def _outline(self, reference: Reference, seed: int) -> Trial:
        if reference.key not in self._outlines:
            first = self._trial(reference, seed, "trial 0", "own")
            with self._bench.share(), self._lock:
                whole = replace(first, inputs=reference.inputs_of(first))
            keep(self._outlines, reference.key, outline(whole), 1024)
        return self._outlines[reference.key]

    def _trial(self, reference: Reference, seed: int, label: str, draw: Draw) -> Trial:
        """Trials are kept while they fit; of large ones only what is expected."""
        key = (reference.key, seed, f"{label}:{draw}")
        known = self._outlines.get(reference.key)
        footprint = _FOOTPRINT * known.num_bytes if known else self._working.num_bytes
        if key in self._trials:
            footprint = 0
        with self._working.take(footprint), self._bench.share(), self._lock:
            trial = self._trials.get(key)
            if trial is not None:
                self._trials.move_to_end(key)
            if trial is None:
                trial = self._compute(reference, seed, label, draw)
                large = trial.num_bytes > _LARGE_BYTES
                if large:
                    trial = replace(trial, inputs=[])
                self._trials[key] = trial
                while sum(one.num_bytes for one in self._trials.values()) > self._kept_bytes:
                    self._trials.popitem(last=False)
                if large:
                    # What torch holds back would be missing to the candidates.
                    torch.cuda.empty_cache()
            return trial

    def _choose_draws(self, reference: Reference, seed: int) -> list[tuple[str, Draw]]:
        """As `Judge`, but whether a problem takes normal numbers is found out once."""
        key = reference.key
        if key not in self._draws:
            keep(self._draws, key, super()._choose_draws(reference, seed), 1024)
        return self._draws[key]


def _say(outcome: Answer | Died | Failure | str) -> str:
    match outcome:
        case Died():
            return outcome.reason
        case Answer(claim=Failure() as failure) | (Failure() as failure):
            return f"{failure.error}: {failure.message}"
    return str(outcome)
