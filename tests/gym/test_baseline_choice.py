"""Which baselines are measured, and which is the denominator."""

from __future__ import annotations

import pytest

from kernel_core.gym.timing.baseline_choice import chosen_row, wanted_kinds, with_repeated
from kernel_core.records import Baseline, BaselineKind, BaselineTiming, ProductPrecision, Timing


def _row(kind: BaselineKind, median_ms: float | None) -> BaselineTiming:
    if median_ms is None:
        return BaselineTiming(kind=kind, timing=None, failure="BackendCompilerFailed: no")
    timing = Timing(
        median_ms=median_ms, ci_low_ms=median_ms, ci_high_ms=median_ms, num_calls=50, clock="device_events"
    )
    return BaselineTiming(kind=kind, timing=timing)


ROWS = (_row("eager", 4.0), _row("compile", 3.0), _row("eager_tf32", 1.0), _row("compile_tf32", 0.8))


@pytest.mark.parametrize(
    ("baseline", "precision", "kind"),
    [
        ("fair", "ieee", "compile"),
        ("fair", "tf32x3", "compile"),
        ("fair", "tf32", "compile_tf32"),
        ("fair", "half", "compile_tf32"),
        ("fair", None, "compile_tf32"),
        ("eager", "tf32", "eager"),
        ("eager_tf32", "ieee", "eager_tf32"),
    ],
)
def test_the_denominator_computes_at_the_candidates_precision_or_higher(
    baseline: Baseline, precision: ProductPrecision | None, kind: BaselineKind
) -> None:
    chosen = chosen_row(ROWS, baseline, precision)
    assert chosen is not None and chosen.kind == kind


def test_a_failed_compiler_is_no_denominator_and_nothing_stands_in_for_it() -> None:
    rows = (_row("eager", 4.0), _row("compile", None))
    assert chosen_row(rows, "compile", "ieee") is None
    fair = chosen_row(rows, "fair", "ieee")
    assert fair is not None and fair.kind == "eager"


def test_without_float32_products_tf32_is_not_measured_and_its_rows_repeat_the_exact_ones() -> None:
    assert wanted_kinds("fair", has_products=False) == ("eager", "compile")
    assert wanted_kinds("compile_tf32", has_products=False) == ("eager", "compile")
    assert wanted_kinds("eager", has_products=True) == ("eager",)
    assert set(wanted_kinds("fair", has_products=True)) == {row.kind for row in ROWS}
    rows = with_repeated((_row("eager", 4.0), _row("compile", None)), has_products=False)
    known = {row.kind: row.timing for row in rows}
    assert known["eager_tf32"] == known["eager"] and known["compile_tf32"] is None
    assert with_repeated(ROWS, has_products=True) == ROWS
