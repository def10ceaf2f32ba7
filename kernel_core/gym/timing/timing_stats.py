"""Times a forward pass on a GPU: many calls, two clocks.

In the candidate's process device events time each call (`call_timer.py`). Their times are a claim. It must
agree with the judge's own clock over the same calls, less the overhead of the same calls with the reference.
It must also agree with the device time of the replayed trace, where no host code of the candidate runs. A
timed call and the replay may give other bits for the same inputs. Then other work may have been timed, and
the two times must nearly agree. Where a witness gives a longer time, the witness counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernel_core.gym.channel.pytree import Fingerprint
from kernel_core.records import Timing

_DISAGREEMENT = 0.25
_SLACK_MS, _KEPT_BYTES_PER_MS = 0.1, 5e8
"""The excess of the judge's clock over the events, for each call and for keeping its outputs, which takes
longer when they are strided. A candidate gains nothing by it that the replay would not show."""
_STEADY, _STEADY_MS = 0.02, 1e-3
"""The widest interval of a steady timing, relative to the median and absolute."""
_REPLAY_SHARE, _OTHER_SHARE = 0.75, 0.95
"""The least claim as a share of the replay's time: where its outputs are those of the replay, and where not.
"""
_EVENTS_MS = 3e-3
"""The cost of an event; there is one between replayed operations."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clock frequency of a GPU at a moment, and its throttling."""

    sm_mhz: int | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Clocked:
    """The calls of one candidate (or of the reference) as both clocks saw them."""

    times_ms: tuple[float, ...]
    """Times by device events, as the process claims them."""
    wall_ms: float
    """The time of all calls together, by the judge's clock."""
    state: Clocks = field(default_factory=Clocks)
    """The clocks of the GPU, right after the last call."""
    outputs: Mapping[int, Sequence[Fingerprint]] = field(default_factory=dict)
    """Outputs of the calls on hidden trials, by the trials' seeds."""

    @property
    def claimed_ms(self) -> float:
        """The average time of a call."""
        return sum(self.times_ms) / len(self.times_ms)

    def joined(self, more: Clocked) -> Clocked:
        """The timing of these calls and of further ones of the same process."""
        times_ms, outputs = self.times_ms + more.times_ms, {**self.outputs, **more.outputs}
        return Clocked(times_ms, self.wall_ms + more.wall_ms, more.state, outputs)

    @property
    def overhead_ms(self) -> float:
        """Time of a call by the judge's clock, less that of the forward pass."""
        return self.wall_ms / len(self.times_ms) - self.claimed_ms


@dataclass(frozen=True, slots=True)
class ReplayTime:
    """The time of a candidate's recorded work without its host code."""

    device_ms: float
    num_works: int
    is_same: bool
    """True if its outputs are, bit for bit, those of a timed call on the same inputs."""

    @property
    def least_ms(self) -> float:
        """A call that did this work took no less."""
        share = _REPLAY_SHARE if self.is_same else _OTHER_SHARE
        return share * (self.device_ms - _EVENTS_MS * (self.num_works - 1))


def clocks_agree(clocked: Clocked, overhead_ms: float, num_bytes: int) -> bool:
    """Return True if the judge's clock saw no more than the events say, beside the reference's overhead a
    call; `num_bytes` are those of a call's inputs and outputs."""
    slack_ms = _SLACK_MS + num_bytes / _KEPT_BYTES_PER_MS
    return _seen_ms(clocked, overhead_ms) <= clocked.claimed_ms * (1 + _DISAGREEMENT) + slack_ms


def settle(
    clocked: Clocked, overhead_ms: float, num_bytes: int, replayed: ReplayTime | None
) -> tuple[Timing, str]:
    """The time that counts, and what was wrong with the claim (nothing, usually).

    `overhead_ms` is the reference's; `replayed` what is known of the replayed trace.
    """
    timing, seen_ms = summarize(clocked), _seen_ms(clocked, overhead_ms)
    if not clocks_agree(clocked, overhead_ms, num_bytes):
        fault = f"its events say {clocked.claimed_ms:.4g} ms a call, the judge's clock {seen_ms:.4g} ms"
        return as_wall(timing, seen_ms), fault
    if replayed is not None and contradicts(clocked, replayed):
        other = "" if replayed.is_same else ", and its timed calls gave other bits"
        needed_ms = replayed.device_ms
        fault = f"its events say {timing.median_ms:.4g} ms, its kernels alone need {needed_ms:.4g} ms{other}"
        return as_wall(timing, max(seen_ms, needed_ms) if replayed.is_same else needed_ms), fault
    return timing, ""


def contradicts(clocked: Clocked, replayed: ReplayTime) -> bool:
    """Return True if the replayed trace needs more time than the process claims for the calls."""
    return statistics.median(clocked.times_ms) < replayed.least_ms


def straddled(timing: Timing, reference: Timing, thresholds: Sequence[float]) -> float | None:
    """The first of some speed-ups that the interval of this one contains, if any."""
    low, high = reference.ci_low_ms / timing.ci_high_ms, reference.ci_high_ms / timing.ci_low_ms
    return next((threshold for threshold in thresholds if low < threshold < high), None)


def is_steady(clocked: Clocked) -> bool:
    """Return True if the calls took much the same time, so that nothing came between them."""
    timing = summarize(clocked)
    return _spread_ms(timing) <= max(_STEADY * timing.median_ms, _STEADY_MS)


def steadier(first: Clocked, other: Clocked) -> Clocked:
    """The one of two timings of the same calls that has the narrower interval."""
    return min(first, other, key=lambda clocked: _spread_ms(summarize(clocked)))


def _spread_ms(timing: Timing) -> float:
    return timing.ci_high_ms - timing.ci_low_ms


def _seen_ms(clocked: Clocked, overhead_ms: float) -> float:
    return clocked.wall_ms / len(clocked.times_ms) - overhead_ms


def summarize(clocked: Clocked) -> Timing:
    """Median and its 95 % interval by order statistics (binomial, normal approximation)."""
    ordered = sorted(clocked.times_ms)
    count = len(ordered)
    half = 0.98 * math.sqrt(count)
    low = max(0, math.floor(count / 2 - half))
    high = min(count - 1, math.ceil(count / 2 + half))
    return Timing(
        median_ms=statistics.median(ordered),
        ci_low_ms=ordered[low],
        ci_high_ms=ordered[high],
        num_calls=count,
        clock="device_events",
        sm_mhz=clocked.state.sm_mhz,
        throttled=clocked.state.throttled,
    )


def as_wall(timing: Timing, milliseconds: float) -> Timing:
    """The judge's own figure in place of what the candidate's process claims."""
    return timing.model_copy(
        update={
            "median_ms": milliseconds,
            "ci_low_ms": milliseconds,
            "ci_high_ms": milliseconds,
            "clock": "wall",
        }
    )
