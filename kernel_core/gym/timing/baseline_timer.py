"""The time of a problem's reference, measured as a candidate's is, for all candidates of the problem."""

from __future__ import annotations

import contextlib
import functools
import threading

from kernel_core.config import GymConfig
from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.cuda_arena import ArenaPool, TooLittleMemory
from kernel_core.gym.channel.messages import Failure, Loaded, NotLoaded
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.timing.baseline_store import Baseline, Baselines
from kernel_core.gym.timing.retiming import Stopwatch
from kernel_core.gym.timing.timed_batch import arena_bytes
from kernel_core.gym.timing.timing_stats import Clocked, summarize
from kernel_core.gym.workers.child import Answer, ChildSession, Died, describe
from kernel_core.gym.workers.gpu_locks import Room
from kernel_core.gym.workers.payload import load_header
from kernel_core.gym.workers.workers import Workers

_AS_CANDIDATE = {
    "eager": "\n\nModelNew = Model\n",
    "compile": "\n\ndef ModelNew(*arguments):\n    return torch.compile(Model(*arguments))\n",
}
_COMPILE_DEADLINE_S = 120.0
"""The extension of the deadline for `torch.compile`."""
HEAVY_BYTES = 1 << 29
"""Larger weights take room before they are handed over, and keep it as long as a copy of them exists."""
_SLACK = 1.1
"""The memory of a reference in its own process, over that in its judge's."""


class ReferenceClock:
    """Each reference is measured once, by both clocks, in a process of its own."""

    def __init__(
        self,
        config: GymConfig,
        workers: Workers,
        stopwatch: Stopwatch,
        baselines: Baselines,
        room: Room,
        arenas: ArenaPool,
    ) -> None:
        self._how = config.baseline
        self._workers = workers
        self._stopwatch = stopwatch
        self._baselines = baselines
        self._room = room
        self._arenas = arenas
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def baseline(self, reference: Reference, like: Trial) -> Baseline:
        """The known baseline, or one that is measured now. No candidate of the problem runs yet, so none can
        keep the GPU busy behind the reference's back."""
        known = self._baselines.get(reference)
        if known is not None:
            return known
        with self._lock:
            lock = self._locks.setdefault(reference.key, threading.Lock())
        # A thread with all the room does not wait for a thread that wants some.
        with contextlib.nullcontext() if self._room.is_all_mine() else lock:
            known = self._baselines.get(reference)
            if known is None:
                known = self._measure(reference, like)
                self._baselines.put(reference, known)
            return known

    def _measure(self, reference: Reference, like: Trial) -> Baseline:
        """Memory is taken when the process is up, and given back after its end."""
        work_bytes = int(_SLACK * reference.work_bytes) + 3 * reference.weight_bytes
        room = functools.partial(self._room.take, self._room.below_all(arena_bytes(like) + work_bytes))
        with contextlib.ExitStack() as stack:
            if reference.weight_bytes > HEAVY_BYTES:
                stack.enter_context(room())
            with self._workers.open_child("runner") as talk:
                self._load(talk, reference)
                stack.enter_context(room())  # nothing where there is room already
                self._arenas.shrink(self._room.free_bytes)
                with self._workers.share():
                    bed = stack.enter_context(self._arenas.lend(arena_bytes(like)))
                clocked = self._stopwatch.calls(talk, reference, like, [], bed)
        if not isinstance(clocked, Clocked):
            raise _cannot_time(reference, clocked)
        return Baseline(timing=summarize(clocked), overhead_ms=clocked.overhead_ms)

    def _load(self, talk: ChildSession, reference: Reference) -> None:
        with self._workers.share():
            header, arena = load_header(reference, reference.source + _AS_CANDIDATE[self._how], poison=0)
        if self._how == "compile":
            talk.allow(_COMPILE_DEADLINE_S)
        descriptors = (arena.descriptor,)
        answer = talk.ask(header, (Loaded, NotLoaded), descriptors=descriptors, turn=self._workers.share)
        arena.close()
        if not (isinstance(answer, Answer) and isinstance(answer.claim, Loaded)):
            raise _cannot_time(reference, answer)


def _cannot_time(reference: Reference, outcome: Answer | Died | Failure | str) -> Exception:
    claim = outcome.claim if isinstance(outcome, Answer) else outcome
    if isinstance(claim, Failure) and claim.ran_out_of_memory:
        return TooLittleMemory(describe(outcome))
    return NotAProblem(f"the reference of {reference.problem.id} cannot be timed: {describe(outcome)}")
