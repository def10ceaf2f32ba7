"""A speed-up names the time it is divided by."""

import itertools

import pytest

from kernel_core.records import BaselineTiming, Evaluation, Timing, Verdict, fair_kinds


def _timing(median_ms: float) -> Timing:
    return Timing(
        median_ms=median_ms, ci_low_ms=median_ms, ci_high_ms=median_ms, num_calls=10, clock="device_events"
    )


def _evaluation(precision: str | None) -> Evaluation:
    times_ms = {"eager": 4.0, "compile": 3.0, "eager_tf32": 1.0}
    timings = [BaselineTiming(kind=kind, timing=_timing(ms)) for kind, ms in times_ms.items()]
    failed = BaselineTiming(kind="compile_tf32", timing=None, failure="BackendCompilerFailed")
    return Evaluation(
        problem_id="suite/name",
        candidate_sha="0" * 64,
        verdict=Verdict.CORRECT,
        trials_passed=1,
        trials=1,
        timing=_timing(2.0),
        reference_timing=_timing(4.0),
        speedup=2.0,
        baseline="eager",
        baselines=(*timings, failed),
        product_precision=precision,
        feedback="",
        gym_version="1",
        device="cuda",
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("precision", "speedup"), [("ieee", 1.5), ("tf32x3", 1.5), ("tf32", 0.5), ("half", 0.5), (None, 0.5)]
)
def test_the_fair_baseline_is_the_fastest_at_the_candidates_precision_or_higher(precision, speedup):
    assert _evaluation(precision).speedup_over("fair") == speedup


def test_a_baseline_that_failed_gives_no_speedup():
    assert _evaluation("tf32").speedup_over("compile_tf32") is None


def test_every_fair_kind_of_a_precision_is_fair_at_a_lower_precision():
    order = ["ieee", "tf32x3", "tf32", "half", None]
    kinds = [set(fair_kinds(precision)) for precision in order]
    assert all(higher <= lower for higher, lower in itertools.pairwise(kinds))
