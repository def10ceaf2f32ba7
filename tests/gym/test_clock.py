"""Two clocks: what counts when they agree, and when they do not."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.gym.clock import Clocked, clocks_agree, settle, summarize

TIMES = tuple(1.0 + 0.001 * (i % 7) for i in range(50))


def _clocked(times: tuple[float, ...] = TIMES, extra_ms: float = 0.2) -> Clocked:
    return Clocked(times, sum(times) + len(times) * extra_ms)


def test_an_honest_claim_is_the_time() -> None:
    timing, fault = settle(_clocked(), overhead_ms=0.2, num_bytes=1000, replayed_ms=0.95)
    assert fault == ""
    assert timing.median_ms == statistics.median(TIMES)
    assert timing.clock == "device_events"


def test_events_that_say_less_than_the_judges_clock_do_not_count() -> None:
    lying = Clocked(tuple(t / 10 for t in TIMES), sum(TIMES) + len(TIMES) * 0.2)
    timing, fault = settle(lying, overhead_ms=0.2, num_bytes=1000, replayed_ms=None)
    assert "the judge's clock" in fault
    assert timing.median_ms == pytest.approx(statistics.fmean(TIMES))
    assert timing.clock == "wall"


def test_events_that_say_less_than_the_replayed_kernels_need_do_not_count() -> None:
    # So short that the judge's own clock cannot tell.
    claimed = Clocked((0.001,) * 50, 50 * 0.2)
    timing, fault = settle(claimed, overhead_ms=0.18, num_bytes=1000, replayed_ms=0.03)
    assert "its kernels alone need" in fault
    assert timing.median_ms == pytest.approx(0.03)


def test_keeping_large_outputs_takes_time_that_is_nobodys() -> None:
    slow = _clocked(extra_ms=8.0)
    assert clocks_agree(slow, overhead_ms=0.2, num_bytes=4 << 30)
    assert not clocks_agree(slow, overhead_ms=0.2, num_bytes=1 << 20)


def test_a_slow_host_is_no_lie() -> None:
    assert clocks_agree(_clocked(extra_ms=0.4), overhead_ms=0.2, num_bytes=0)
    assert not clocks_agree(_clocked(extra_ms=0.7), overhead_ms=0.2, num_bytes=0)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200))
def test_the_interval_holds_the_median(times: list[float]) -> None:
    timing = summarize(times)
    assert timing.ci_low_ms <= timing.median_ms <= timing.ci_high_ms
    assert min(times) <= timing.ci_low_ms and timing.ci_high_ms <= max(times)
    assert timing.num_calls == len(times)


def test_the_interval_narrows_with_calls() -> None:
    def width(count: int) -> float:
        timing = summarize([1.0 + 0.01 * ((i * 37) % 101) for i in range(count)])
        return timing.ci_high_ms - timing.ci_low_ms

    assert width(400) < width(100) < width(25)
