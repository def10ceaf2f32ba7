"""Baselines are kept by problem, platform and way of running; nothing unreadable is believed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.timing.baseline_store import Baseline, Baselines
from kernel_core.gym.timing.nvml import describe_platform
from kernel_core.records import Problem, Timing
from kernel_core.store import Store

BASELINE = Baseline(
    timing=Timing(median_ms=1.0, ci_low_ms=0.9, ci_high_ms=1.1, num_calls=50, clock="device_events"),
    overhead_ms=0.2,
)


@pytest.fixture
def reference(problems: dict[str, Problem]) -> Reference:
    return Reference(problems["relu"], problems["relu"].cpu_constants)


def test_a_later_judge_on_the_same_platform_finds_it(tmp_path: Path, reference: Reference) -> None:
    Baselines(Store(tmp_path), describe_platform(), "eager").put(reference, BASELINE)
    assert Baselines(Store(tmp_path), describe_platform(), "eager").get(reference) == BASELINE


def test_another_platform_way_or_size_does_not(
    tmp_path: Path, reference: Reference, problems: dict[str, Problem]
) -> None:
    store, platform = Store(tmp_path), describe_platform()
    Baselines(store, platform, "eager").put(reference, BASELINE)
    other = platform.model_copy(update={"driver": "999.1"})
    assert Baselines(store, other, "eager").get(reference) is None
    assert Baselines(store, platform, "compile").get(reference) is None
    larger = Reference(problems["relu"], {**problems["relu"].cpu_constants, "M": 9})
    assert Baselines(store, platform, "eager").get(larger) is None


def test_without_a_store_a_judge_remembers_its_own(reference: Reference) -> None:
    baselines = Baselines(None, describe_platform(), "eager")
    assert baselines.get(reference) is None
    baselines.put(reference, BASELINE)
    assert baselines.get(reference) == BASELINE


@pytest.mark.parametrize("text", ["", "{}", '{"baseline": {"timing": null}}'])
def test_a_damaged_file_is_measured_again(
    tmp_path: Path, reference: Reference, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    Baselines(Store(tmp_path), describe_platform(), "eager").put(reference, BASELINE)
    [file] = tmp_path.rglob("*.json")
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert Baselines(Store(tmp_path), describe_platform(), "eager").get(reference) is None
    assert "measuring again" in caplog.text
