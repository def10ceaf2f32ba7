"""Grades of the generators' kernels that are taught, by what was measured on a GPU (`data/`).

`python benchmarks/modules_full_size.py --out ROWS.jsonl --keep data/measured_grades.parquet` measures them.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path
from statistics import median
from typing import NamedTuple

from kernel_core.data_folder import DATA
from kernel_core.parquet_rows import unpacked

MEASURED = DATA / "measured_grades.parquet"
NEAR_BEST = 0.85
"""The least share of the best grade's median speed-up for a grade to be taught."""
LEAST_OWN_SHARE = 0.2
"""The least share of the work in a kernel's own launches for it to be taught; below it a kernel shows little.

Medians of 61 families measured on an H100 leave a gap from 0.11 to 0.23. A value in the gap has all grades of
a family on one side. 0.1 would teach the slowest grade of a convolution with an elementwise end.
"""
NAMED_GRADES = ("fused", "tuned")
"""Taught where no measurement decides."""


class _Medians(NamedTuple):
    """Over the correct kernels of one grade."""

    speedup: float
    own_share: float


@functools.cache
def fastest_grades(path: Path = MEASURED) -> Mapping[str, tuple[str, ...]]:
    """Return for each measured family the grades that are taught.

    Those with a median speed-up of at least `NEAR_BEST` of the best grade's. A grade that leaves the work to
    torch is dropped where another does its own; where that other one is not measured, its name decides.
    """
    rows = unpacked(path.read_bytes())
    right: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    judged: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        judged[row["family"]].add(row["grade"])
        if row["verdict"] == "correct":
            right[row["family"]][row["grade"]].append((row["speedup"], row["own_share"]))
    return {
        family: _taught(
            {
                grade: _Medians(*map(median, zip(*of_grade, strict=True)))
                for grade, of_grade in grades.items()
            },
            judged[family],
        )
        for family, grades in right.items()
    }


def _taught(medians: Mapping[str, _Medians], judged: Set[str]) -> tuple[str, ...]:
    """Return one family's grades; `judged` includes grades that were never correct."""
    own = {grade: figures for grade, figures in medians.items() if figures.own_share >= LEAST_OWN_SHARE}
    if not own and "tuned" not in judged:
        return tuple(grade for grade in NAMED_GRADES if grade not in judged)
    compared = own or medians
    best = max(figures.speedup for figures in compared.values())
    return tuple(grade for grade in sorted(compared) if compared[grade].speedup >= NEAR_BEST * best)
