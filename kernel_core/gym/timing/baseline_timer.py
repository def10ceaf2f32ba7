"""Times of a problem's reference, measured as a candidate's is, for all candidates of the problem.

Eager's time comes before the first candidate of the problem runs. The other ways to run it are measured in
the background once a candidate is correct: a compiler works beside the judge, in a process of its own, and
only the timed calls have the GPU alone. They wait until no candidate of the problem runs, because one that
knows the problem could keep the GPU busy meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

from kernel_core.config import GymConfig
from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.cuda_arena import ArenaPool, DeviceArena, TooLittleMemory
from kernel_core.gym.channel.messages import Failure, Loaded, NotLoaded, Prepared
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.timing.baseline_choice import wanted_kinds
from kernel_core.gym.timing.baseline_store import Baselines, MeasuredBaseline
from kernel_core.gym.timing.retiming import Stopwatch
from kernel_core.gym.timing.timed_batch import arena_bytes
from kernel_core.gym.timing.timing_stats import Clocked, summarize
from kernel_core.gym.workers.child import Answer, ChildSession, Died, describe
from kernel_core.gym.workers.gpu_locks import Room
from kernel_core.gym.workers.payload import deliver, load_header
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import BaselineKind, BaselineTiming

_log = logging.getLogger(__name__)
_AS_CANDIDATE = "\n\nModelNew = Model\n"
_COMPILE_DEADLINE_S = 180.0
"""The extension of the deadline for each use of `torch.compile`."""
HEAVY_BYTES = 1 << 29
"""Larger weights take room before they are handed over, and keep it as long as a copy of them exists."""
_SLACK = 1.1
"""The memory of a reference in its own process, over that in its judge's."""
_CORES_BY_COMPILER = 3
_MOST_QUIET_S = 30.0
"""The longest wait for the last candidate of a problem, which may itself wait for memory."""
_MAX_REASON_CHARS = 300


class Presence:
    """Counts the running candidates of each problem."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()

    @contextlib.contextmanager
    def running(self, problem: str) -> Iterator[None]:
        """Count a candidate of the problem for as long as this lasts."""
        with self._changed:
            self._running[problem] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running[problem] -= 1
                self._running += Counter()  # drops zeros
                self._changed.notify_all()

    def wait_until_none(self, problem: str) -> bool:
        """Wait until no candidate of the problem runs; return False after `_MOST_QUIET_S`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running[problem], _MOST_QUIET_S)


class ReferenceClock:
    """Each reference is measured once in each way, by both clocks, in a process of its own."""

    def __init__(
        self,
        config: GymConfig,
        workers: Workers,
        stopwatch: Stopwatch,
        baselines: Baselines,
        room: Room,
        arenas: ArenaPool,
    ) -> None:
        self._baseline = config.baseline
        self._mode = config.compile_mode
        self._workers = workers
        self._stopwatch = stopwatch
        self._baselines = baselines
        self._room = room
        self._arenas = arenas
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._background: dict[str, Future[None]] = {}
        self._compilers = threading.Semaphore(max(1, len(os.sched_getaffinity(0)) // _CORES_BY_COMPILER))
        self.presence = Presence()

    def eager(self, reference: Reference, like: Trial) -> MeasuredBaseline:
        """Return eager's known time, or measure it now. No candidate of the problem runs yet, so none can
        keep the GPU busy behind the reference's back. Raises `NotAProblem` where it cannot be timed."""
        known = self._baselines.get(reference, "eager")
        if known is None:
            with self._lock:
                lock = self._locks.setdefault(reference.key, threading.Lock())
            # A thread with all the room does not wait for a thread that wants some.
            with contextlib.nullcontext() if self._room.is_all_mine() else lock:
                known = self._baselines.get(reference, "eager")
                if known is None:
                    [known] = self._measure(reference, like, ("eager",))
                    if known.row.timing is not None:
                        self._baselines.put(reference, known)
        if known.row.timing is None:
            raise NotAProblem(f"the reference of {reference.problem.id} cannot be timed: {known.row.failure}")
        return known

    def begin_others(self, reference: Reference, like: Trial) -> None:
        """Start a thread that times the baselines other than eager.

        Does nothing if all are known or under way, or if this thread has all of the GPU's memory.
        """
        if self._room.is_all_mine() or not self._missing(reference):
            return
        with self._lock:
            if reference.key in self._background:
                return
            done: Future[None] = Future()
            self._background[reference.key] = done
        threading.Thread(target=self._measure_others, args=(reference, like, done), daemon=True).start()

    def rows(self, reference: Reference, like: Trial) -> list[BaselineTiming]:
        """Return all wanted rows, when they are there. The caller has no memory that others wait for."""
        if self._room.is_all_mine():
            # A background thread would wait for the room that this thread has.
            self._measure_missing(reference, like)
        else:
            self.begin_others(reference, like)
            with self._lock:
                under_way = self._background.get(reference.key)
            if under_way is not None:
                under_way.result()
        known = [self._baselines.get(reference, kind) for kind in self._kinds(reference)]
        return [timed.row for timed in known if timed is not None]

    def _measure_others(self, reference: Reference, like: Trial, done: Future[None]) -> None:
        try:
            with self._compilers:
                self._measure_missing(reference, like)
        finally:
            with self._lock:
                del self._background[reference.key]
            done.set_result(None)

    def _measure_missing(self, reference: Reference, like: Trial) -> None:
        """Measure and keep the missing ways; whatever fails is a row with its reason."""
        missing = self._missing(reference)
        try:
            for baseline in self._measure(reference, like, missing) if missing else ():
                self._baselines.put(reference, baseline)
        except Exception as error:  # a judge of other problems goes on
            _log.exception("baselines of %s", reference.problem.id)
            for kind in self._missing(reference):
                failed = _failed(kind, f"{type(error).__name__}: {error}")
                self._baselines.put(reference, failed, lasting=False)

    def _kinds(self, reference: Reference) -> tuple[BaselineKind, ...]:
        return wanted_kinds(self._baseline, has_products=reference.has_float32_products)

    def _missing(self, reference: Reference) -> tuple[BaselineKind, ...]:
        kinds = self._kinds(reference)
        return tuple(kind for kind in kinds if self._baselines.get(reference, kind) is None)

    def _measure(
        self, reference: Reference, like: Trial, kinds: Sequence[BaselineKind]
    ) -> list[MeasuredBaseline]:
        """Measure each kind; one after another in one process, and in another one after its death."""
        measured: list[MeasuredBaseline] = []
        while len(measured) < len(kinds):
            measured += self._measure_in_one_process(reference, like, kinds[len(measured) :])
        return measured

    def _measure_in_one_process(
        self, reference: Reference, like: Trial, kinds: Sequence[BaselineKind]
    ) -> list[MeasuredBaseline]:
        """Return the first baselines, at least one. Memory is taken when the process is up, and given back
        after its end."""
        work_bytes = int(_SLACK * reference.work_bytes) + 3 * reference.weight_bytes
        room = functools.partial(self._room.take, self._room.below_all(arena_bytes(like) + work_bytes))
        measured: list[MeasuredBaseline] = []
        with contextlib.ExitStack() as stack:
            if reference.weight_bytes > HEAVY_BYTES:
                stack.enter_context(room())
            with self._workers.open_child("baseline") as talk:
                fault = self._load(talk, reference)
                if fault is not None:
                    return [_failed(kind, fault) for kind in kinds]
                stack.enter_context(room())  # nothing where there is room already
                self._arenas.shrink(self._room.free_bytes)
                with self._workers.share():
                    bed = stack.enter_context(self._arenas.lend(arena_bytes(like)))
                for kind in kinds:
                    outcome = self._time(talk, reference, like, bed, kind)
                    measured.append(
                        outcome if isinstance(outcome, MeasuredBaseline) else _failed(kind, outcome)
                    )
                    if not isinstance(outcome, MeasuredBaseline):
                        break  # what it left behind may disturb the next kind
        return measured

    def _load(self, talk: ChildSession, reference: Reference) -> str | None:
        """Hand the reference over; return the reason where it does not load."""
        with self._workers.share():
            header, arena = load_header(reference, reference.source + _AS_CANDIDATE, poison=0)
        descriptors = (arena.descriptor,)
        answer = talk.ask(header, (Loaded, NotLoaded), descriptors=descriptors, turn=self._workers.share)
        arena.close()
        if isinstance(answer, Answer) and isinstance(answer.claim, Loaded):
            return None
        return _reason(answer)

    def _time(
        self, talk: ChildSession, reference: Reference, like: Trial, bed: DeviceArena, kind: BaselineKind
    ) -> MeasuredBaseline | str:
        """Return the time of one kind, or why there is none."""
        if kind.startswith("compile"):
            talk.allow(_COMPILE_DEADLINE_S)
        with self._workers.draw():
            delivery = deliver(reference, replace(like, inputs=[]), arena=bed)
        try:
            answer = talk.ask(
                {**delivery.header, "baseline": kind, "mode": self._mode},
                (Prepared, Failure),
                descriptors=(delivery.arena.descriptor,),
                turn=self._workers.share,
            )
        finally:
            delivery.close()
        if not isinstance(answer, Answer) or not isinstance(answer.claim, Prepared):
            return _reason(answer)
        if kind != "eager" and not self._room.is_all_mine():
            self.presence.wait_until_none(reference.key)
        clocked = self._stopwatch.calls(talk, reference, like, [], bed)
        if not isinstance(clocked, Clocked):
            return _reason(clocked)
        row = BaselineTiming(kind=kind, timing=summarize(clocked))
        return MeasuredBaseline(row=row, overhead_ms=clocked.overhead_ms)


def _failed(kind: BaselineKind, reason: str) -> MeasuredBaseline:
    return MeasuredBaseline(row=BaselineTiming(kind=kind, timing=None, failure=reason[:_MAX_REASON_CHARS]))


def _reason(outcome: Answer | Died | Failure | str) -> str:
    """Return the first line of a failure. Raises `TooLittleMemory` where the GPU was full, maybe of others'
    work."""
    claim = outcome.claim if isinstance(outcome, Answer) else outcome
    if isinstance(claim, Failure) and claim.ran_out_of_memory:
        raise TooLittleMemory(describe(outcome))
    return describe(outcome).strip().partition("\n")[0] or "no reason was given"
