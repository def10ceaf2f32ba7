"""Two clocks: what counts when they agree, and when they do not."""

from __future__ import annotations

import statistics
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.gym.timing.timing_stats import (
    Clocked,
    Clocks,
    ReplayTime,
    clocks_agree,
    is_steady,
    settle,
    steadier,
    straddled,
    summarize,
)
from kernel_core.gym.untrusted.candidate.call_timer import time_calls
from kernel_core.records import Timing

TIMES = tuple(1.0 + 0.001 * (i % 7) for i in range(50))


def _clocked(times: tuple[float, ...] = TIMES, extra_ms: float = 0.2) -> Clocked:
    return Clocked(times, sum(times) + len(times) * extra_ms)


def _replayed(device_ms: float, num_works: int = 1, *, is_same: bool = True) -> ReplayTime:
    return ReplayTime(device_ms, num_works, is_same)


def test_an_honest_claim_is_the_time() -> None:
    timing, fault = settle(_clocked(), overhead_ms=0.2, num_bytes=1000, replayed=_replayed(0.95))
    assert fault == ""
    assert timing.median_ms == statistics.median(TIMES)
    assert timing.clock == "device_events"


def test_events_that_say_less_than_the_judges_clock_do_not_count() -> None:
    lying = Clocked(tuple(t / 10 for t in TIMES), sum(TIMES) + len(TIMES) * 0.2)
    timing, fault = settle(lying, overhead_ms=0.2, num_bytes=1000, replayed=None)
    assert "the judge's clock" in fault
    assert timing.median_ms == pytest.approx(statistics.fmean(TIMES))
    assert timing.clock == "wall"


def test_events_that_say_less_than_the_replayed_kernels_need_do_not_count() -> None:
    # So short that the judge's own clock cannot tell.
    claimed = Clocked((0.001,) * 50, 50 * 0.2)
    timing, fault = settle(claimed, overhead_ms=0.18, num_bytes=1000, replayed=_replayed(0.03))
    assert "its kernels alone need" in fault
    assert timing.median_ms == pytest.approx(0.03)


def test_a_call_that_gave_other_bits_than_the_replay_took_as_long_as_the_replay() -> None:
    claim = {"overhead_ms": 0.2, "num_bytes": 1000}
    timing, fault = settle(_clocked(), **claim, replayed=_replayed(1.2))
    assert (fault, timing.median_ms) == ("", statistics.median(TIMES))
    timing, fault = settle(_clocked(), **claim, replayed=_replayed(1.2, is_same=False))
    assert "other bits" in fault
    assert timing.median_ms == pytest.approx(1.2)


def test_events_between_replayed_operations_are_nobodys_time() -> None:
    claimed = _clocked((0.020,) * 50)
    for num_works, agrees in ((1, False), (4, True)):
        _, fault = settle(claimed, 0.2, 1000, _replayed(0.029, num_works, is_same=False))
        assert (fault == "") is agrees


def test_keeping_large_outputs_takes_time_that_is_nobodys() -> None:
    slow = _clocked(extra_ms=8.0)
    assert clocks_agree(slow, overhead_ms=0.2, num_bytes=4 << 30)
    assert not clocks_agree(slow, overhead_ms=0.2, num_bytes=1 << 20)


def test_a_slow_host_is_no_lie() -> None:
    assert clocks_agree(_clocked(extra_ms=0.4), overhead_ms=0.2, num_bytes=0)
    assert not clocks_agree(_clocked(extra_ms=0.7), overhead_ms=0.2, num_bytes=0)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200))
def test_the_interval_holds_the_median(times: list[float]) -> None:
    timing = summarize(Clocked(tuple(times), sum(times)))
    assert timing.ci_low_ms <= timing.median_ms <= timing.ci_high_ms
    assert min(times) <= timing.ci_low_ms and timing.ci_high_ms <= max(times)
    assert timing.num_calls == len(times)


def test_the_interval_narrows_with_calls() -> None:
    def width(count: int) -> float:
        timing = summarize(Clocked(tuple(1.0 + 0.01 * ((i * 37) % 101) for i in range(count)), 0.0))
        return timing.ci_high_ms - timing.ci_low_ms

    assert width(400) < width(100) < width(25)


def test_calls_that_something_came_between_are_not_steady() -> None:
    steady = Clocked((3.02, 3.03, 3.02, 3.01, 3.02, 3.03, 3.02, 3.02), 30.0)
    disturbed = Clocked((3.02, 3.40, 3.38, 3.41, 3.02, 3.03, 3.39, 3.02), 30.0)
    short = Clocked((0.0046, 0.0050) * 25, 30.0)
    assert is_steady(steady) and is_steady(short)
    assert not is_steady(disturbed)
    assert steadier(disturbed, steady) is steadier(steady, disturbed) is steady


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_what_the_host_needs_to_launch_a_kernel_is_not_the_kernels_time() -> None:
    def slow_to_launch(x: torch.Tensor) -> torch.Tensor:
        time.sleep(2e-4)
        return x + 1

    x = torch.ones(1 << 20, device="cuda")
    times = time_calls(slow_to_launch, [([x], [])] * 20, lambda leaves, slots: None)
    assert statistics.median(times) < 0.05


def _timing(low_ms: float, median_ms: float, high_ms: float) -> Timing:
    return Timing(
        median_ms=median_ms, ci_low_ms=low_ms, ci_high_ms=high_ms, num_calls=50, clock="device_events"
    )


def test_a_speedup_too_near_to_one_that_matters_is_known_as_such() -> None:
    reference = _timing(0.99, 1.0, 1.01)
    assert straddled(_timing(0.99, 1.0, 1.01), reference, (1.0, 1.2)) == 1.0
    assert straddled(_timing(0.82, 0.83, 0.84), reference, (1.0, 1.2)) == 1.2
    assert straddled(_timing(0.89, 0.90, 0.91), reference, (1.0, 1.2)) is None
    assert straddled(_timing(0.99, 1.0, 1.01), reference, ()) is None


def test_further_calls_are_added_to_the_first() -> None:
    both = _clocked().joined(Clocked((2.0,), 2.1, Clocks(1980, ("power cap",))))
    assert both.times_ms == (*TIMES, 2.0)
    assert both.wall_ms == pytest.approx(_clocked().wall_ms + 2.1)
    timing = summarize(both)
    assert (timing.sm_mhz, timing.throttled) == (1980, ("power cap",))
