"""When a candidate is timed, how often, and which time counts in the end."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from kernel_core.config import GymConfig
from kernel_core.gym.channel.cuda_arena import DeviceArena
from kernel_core.gym.channel.messages import Failure
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.prediction.roofline import count_eager
from kernel_core.gym.timing.baseline_store import MeasuredBaseline
from kernel_core.gym.timing.nvml import NvmlDevice
from kernel_core.gym.timing.timed_batch import GpuAccess, clock_calls
from kernel_core.gym.timing.timing_stats import (
    Clocked,
    ReplayTime,
    as_wall,
    clocks_agree,
    is_steady,
    settle,
    steadier,
    straddled,
    summarize,
)
from kernel_core.gym.verdict.case import Case
from kernel_core.gym.workers.child import ChildSession, Died
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import BaselineTiming, Timing, Verdict

_CLOCKINGS, _RETIMINGS = 3, 2
_KEPT_FLOORS = 1024
Outcome = Clocked | str | Died | Failure
"""The times of calls, or the fault of an output, or the process's end or failure."""
TimeCalls = Callable[[], Outcome]


class Stopwatch:
    """Times candidates on one GPU, one at a time."""

    def __init__(self, config: GymConfig, workers: Workers, gpu: NvmlDevice) -> None:
        self._thresholds = config.retime_at
        self._workers = workers
        self._gpu = gpu
        self._lock = threading.Lock()
        self._compulsory: OrderedDict[str, int] = OrderedDict()

    def calls(
        self,
        talk: ChildSession,
        reference: Reference,
        like: Trial,
        hidden: Sequence[Trial],
        bed: DeviceArena,
        case: Case | None = None,
    ) -> Outcome:
        """See `timed_batch.clock_calls`. Unsteady calls are timed once more while no process starts. The
        reference itself has no case."""
        turns = GpuAccess(self._workers, self._gpu, case)
        clocked = clock_calls(talk, reference, like, hidden, bed, turns, still=False)
        if isinstance(clocked, Clocked) and not is_steady(clocked):
            again = clock_calls(talk, reference, like, hidden, bed, turns, still=True)
            clocked = steadier(clocked, again) if isinstance(again, Clocked) else again
        return clocked

    def clock(
        self,
        talk: ChildSession,
        reference: Reference,
        like: Trial,
        hidden: Sequence[Trial],
        case: Case,
        baseline: MeasuredBaseline,
    ) -> Clocked | None:
        """The timing; None, and a verdict, when a call fails or an output of a hidden trial is wrong."""
        with case.phase("timed"):
            assert case.arena is not None
            calls = functools.partial(self.calls, talk, reference, like, hidden, case.arena, case)
            clocked = self._clock_until_sure(calls, baseline, like.num_bytes)
        match clocked:
            case str():
                case.fail(Verdict.WRONG, f"{clocked} (a timed call)")
            case Died():
                case.fail(Verdict.TIMED_OUT if clocked.timed_out else Verdict.CRASHED, clocked.reason)
            case Failure():
                case.ran_out_of_memory = clocked.ran_out_of_memory
                case.fail(Verdict.CRASHED, clocked.told, clocked.line)
            case Clocked():
                return clocked
        return None

    def conclude(
        self,
        clocked: Clocked,
        overhead_ms: float,
        denominator: BaselineTiming | None,
        reference: Reference,
        like: Trial,
        replayed: ReplayTime | None,
        case: Case,
    ) -> None:
        """Set the times that count, and note what was odd about the claimed ones. `overhead_ms` is that of
        eager's calls, and `denominator` the baseline of the speed-up."""
        timing, fault = settle(clocked, overhead_ms, like.num_bytes, replayed)
        if fault:
            case.note("clock_disagrees", fault)
        timing = self._above_floor(reference, like, timing, case)
        case.timing = timing
        if denominator is not None and denominator.timing is not None:
            near = straddled(timing, denominator.timing, self._thresholds)
            if near is not None:
                case.note("near_threshold", f"too near to {near:g}x to say on which side")
            case.baseline, case.reference_timing = denominator.kind, denominator.timing
        if self._gpu.bytes_per_s:
            case.bandwidth_share = like.num_bytes / (1e-3 * timing.median_ms) / self._gpu.bytes_per_s

    def _clock_until_sure(self, calls: TimeCalls, baseline: MeasuredBaseline, num_bytes: int) -> Outcome:
        """Longer where the speed-up is too near to one that matters to say on which side it lies."""
        eager = baseline.row.timing
        assert eager is not None
        clocked = _clock_until_agreed(calls, baseline, num_bytes)
        for _ in range(_RETIMINGS):
            if not isinstance(clocked, Clocked):
                break
            if straddled(summarize(clocked), eager, self._thresholds) is None:
                break
            more = _clock_until_agreed(calls, baseline, num_bytes)
            clocked = clocked.joined(more) if isinstance(more, Clocked) else more
        return clocked

    def _above_floor(self, reference: Reference, like: Trial, timing: Timing, case: Case) -> Timing:
        """Raise a claimed time to the time that the memory needs for the inputs.

        The compulsory bytes are determined only where all bytes would take longer than the claim. Outputs may
        still lie in the cache when the clock stops.
        """
        rate = self._gpu.bytes_per_s
        if rate is None or timing.median_ms >= 1e3 * like.num_bytes / rate:
            return timing
        floor_ms = 1e3 * (self._compulsory_bytes(reference) - self._gpu.cache_bytes) / rate
        if timing.median_ms >= floor_ms:
            return timing
        case.note("below_roofline", f"{timing.median_ms:.4g} ms, but its memory needs {floor_ms:.4g} ms")
        return as_wall(timing, floor_ms)

    def _compulsory_bytes(self, reference: Reference) -> int:
        with self._workers.draw(), self._lock:
            if reference.key not in self._compulsory:
                self._compulsory[reference.key] = count_eager(reference).compulsory_bytes
                while len(self._compulsory) > _KEPT_FLOORS:
                    self._compulsory.popitem(last=False)
            return self._compulsory[reference.key]


def _clock_until_agreed(calls: TimeCalls, baseline: MeasuredBaseline, num_bytes: int) -> Outcome:
    """The host may be busy when it should look at its clock: only a disagreement that stays counts."""
    best: Clocked | None = None
    for _ in range(_CLOCKINGS):
        clocked = calls()
        if not isinstance(clocked, Clocked):
            return clocked
        if best is None or clocked.wall_ms < best.wall_ms:
            best = clocked
        if clocks_agree(best, baseline.overhead_ms, num_bytes):
            break
    assert best is not None
    return best
