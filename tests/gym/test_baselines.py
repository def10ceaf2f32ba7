"""Baselines are kept by problem, host and way of running; nothing unreadable is believed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kernel_core.gym.baselines import Baseline, Baselines
from kernel_core.gym.host import describe_host
from kernel_core.gym.reference import Reference
from kernel_core.records import Problem, Timing
from kernel_core.store import Store

BASELINE = Baseline(
    timing=Timing(median_ms=1.0, ci_low_ms=0.9, ci_high_ms=1.1, num_calls=50, clock="device_events"),
    overhead_ms=0.2,
)


@pytest.fixture
def reference(problems: dict[str, Problem]) -> Reference:
    return Reference(problems["relu"], problems["relu"].cpu_constants)


def test_a_later_judge_on_the_same_host_finds_it(tmp_path: Path, reference: Reference) -> None:
    Baselines(Store(tmp_path), describe_host(), "eager").put(reference, BASELINE)
    assert Baselines(Store(tmp_path), describe_host(), "eager").get(reference) == BASELINE


def test_another_host_way_or_size_does_not(
    tmp_path: Path, reference: Reference, problems: dict[str, Problem]
) -> None:
    store, host = Store(tmp_path), describe_host()
    Baselines(store, host, "eager").put(reference, BASELINE)
    other_host = host.model_copy(update={"driver": "999.1"})
    assert Baselines(store, other_host, "eager").get(reference) is None
    assert Baselines(store, host, "compile").get(reference) is None
    larger = Reference(problems["relu"], {**problems["relu"].cpu_constants, "M": 9})
    assert Baselines(store, host, "eager").get(larger) is None


def test_without_a_store_a_judge_remembers_its_own(reference: Reference) -> None:
    baselines = Baselines(None, describe_host(), "eager")
    assert baselines.get(reference) is None
    baselines.put(reference, BASELINE)
    assert baselines.get(reference) == BASELINE


@pytest.mark.parametrize("text", ["", "{}", '{"baseline": {"timing": null}}'])
def test_a_damaged_file_is_measured_again(
    tmp_path: Path, reference: Reference, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    Baselines(Store(tmp_path), describe_host(), "eager").put(reference, BASELINE)
    [file] = tmp_path.rglob("*.json")
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert Baselines(Store(tmp_path), describe_host(), "eager").get(reference) is None
    assert "measuring again" in caplog.text
