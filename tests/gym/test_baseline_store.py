"""Baselines are kept by problem, platform and way of running; nothing unreadable is believed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.timing.baseline_store import Baselines, MeasuredBaseline
from kernel_core.gym.timing.nvml import describe_platform
from kernel_core.records import BaselineTiming, Problem, Timing
from kernel_core.store import Store

BASELINE = MeasuredBaseline(
    row=BaselineTiming(
        kind="eager",
        timing=Timing(median_ms=1.0, ci_low_ms=0.9, ci_high_ms=1.1, num_calls=50, clock="device_events"),
    ),
    overhead_ms=0.2,
)
FAILED = MeasuredBaseline(
    row=BaselineTiming(kind="compile", timing=None, failure="BackendCompilerFailed: no kernel")
)


@pytest.fixture
def reference(problems: dict[str, Problem]) -> Reference:
    return Reference(problems["relu"], problems["relu"].cpu_constants)


def test_a_later_judge_on_the_same_platform_finds_it(tmp_path: Path, reference: Reference) -> None:
    Baselines(Store(tmp_path), describe_platform(), "default").put(reference, BASELINE)
    assert Baselines(Store(tmp_path), describe_platform(), "default").get(reference, "eager") == BASELINE


def test_another_platform_way_or_size_does_not(
    tmp_path: Path, reference: Reference, problems: dict[str, Problem]
) -> None:
    store, platform = Store(tmp_path), describe_platform()
    Baselines(store, platform, "default").put(reference, BASELINE)
    other = platform.model_copy(update={"driver": "999.1"})
    assert Baselines(store, other, "default").get(reference, "eager") is None
    assert Baselines(store, platform, "default").get(reference, "compile") is None
    larger = Reference(problems["relu"], {**problems["relu"].cpu_constants, "M": 9})
    assert Baselines(store, platform, "default").get(larger, "eager") is None


def test_without_a_store_a_judge_remembers_its_own(reference: Reference) -> None:
    baselines = Baselines(None, describe_platform(), "default")
    assert baselines.get(reference, "eager") is None
    baselines.put(reference, BASELINE)
    assert baselines.get(reference, "eager") == BASELINE


def test_a_failure_is_kept_with_its_reason_for_its_mode_alone(tmp_path: Path, reference: Reference) -> None:
    store, platform = Store(tmp_path), describe_platform()
    Baselines(store, platform, "default").put(reference, FAILED)
    assert Baselines(store, platform, "default").get(reference, "compile") == FAILED
    assert Baselines(store, platform, "max-autotune").get(reference, "compile") is None


def test_a_passing_failure_is_forgotten_with_its_judge(tmp_path: Path, reference: Reference) -> None:
    store, platform = Store(tmp_path), describe_platform()
    baselines = Baselines(store, platform, "default")
    baselines.put(reference, FAILED, lasting=False)
    assert baselines.get(reference, "compile") == FAILED
    assert Baselines(store, platform, "default").get(reference, "compile") is None


@pytest.mark.parametrize("text", ["", "{}", '{"baseline": {"timing": null}}'])
def test_a_damaged_file_is_measured_again(
    tmp_path: Path, reference: Reference, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    Baselines(Store(tmp_path), describe_platform(), "default").put(reference, BASELINE)
    [file] = tmp_path.rglob("*.json")
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert Baselines(Store(tmp_path), describe_platform(), "default").get(reference, "eager") is None
    assert "measuring again" in caplog.text
