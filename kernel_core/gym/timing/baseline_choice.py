"""The baselines that are measured for a problem, and the one that is a speed-up's denominator."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.records import Baseline, BaselineKind, BaselineTiming, ProductPrecision, fair_kinds

_EXACT_OF: dict[BaselineKind, BaselineKind] = {"eager_tf32": "eager", "compile_tf32": "compile"}
_ALL: tuple[BaselineKind, ...] = ("eager", "eager_tf32", "compile", "compile_tf32")


def wanted_kinds(baseline: Baseline, *, has_products: bool) -> tuple[BaselineKind, ...]:
    """Return the kinds to measure, eager first: the clocks of all calls are compared with its overhead.

    Without products on float32 values (`has_products`), TF32 changes nothing, and only exact kinds are
    measured.
    """
    asked = _ALL if baseline == "fair" else ("eager", baseline)
    kinds = asked if has_products else tuple(_EXACT_OF.get(kind, kind) for kind in asked)
    return tuple(dict.fromkeys(kinds))


def with_repeated(rows: Sequence[BaselineTiming], *, has_products: bool) -> tuple[BaselineTiming, ...]:
    """Return the rows; without products on float32 values those of TF32 too, as repetitions."""
    if has_products:
        return tuple(rows)
    exact = {row.kind: row for row in rows}
    repeated = [exact[of].model_copy(update={"kind": kind}) for kind, of in _EXACT_OF.items() if of in exact]
    return (*rows, *repeated)


def chosen_row(
    rows: Sequence[BaselineTiming], baseline: Baseline, precision: ProductPrecision | None
) -> BaselineTiming | None:
    """Return the denominator's row; None where it could not be measured. For `fair` it is the fastest row at
    `precision` or higher."""
    kinds = fair_kinds(precision) if baseline == "fair" else (baseline,)
    timed = [(row.timing.median_ms, row) for row in rows if row.kind in kinds and row.timing is not None]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None
