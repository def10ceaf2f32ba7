"""Report of an ingest: rows kept, and rows dropped with the reason, for tables and snapshot checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pydantic import Field

from kernel_core.records import Record

_MAX_EXAMPLES = 3


class Dropped(Record):
    """Rows of one source that were left out for one reason."""

    source: str
    step: str
    """`read`, `deduplicate` or `decontaminate`."""
    reason: str
    count: int
    examples: tuple[str, ...]
    """A few of them: the row's key and what was wrong or what it equals."""


class SourceReport(Record):
    """One source's rows in and out, and the terms under which they may be used."""

    source: str
    kind: str
    revision: str
    licence: str
    attribution: str
    rows_in: int
    rows_out: int = 0
    notes: dict[str, int] = Field(default_factory=dict)
    """Corrections and distrusted claims in rows that were kept, with counts."""


class Survivor(Record):
    """The row of a snapshot that comes nearest to an evaluation problem, for a person to look at."""

    problem: str
    exemplar: str
    similarity: float
    """Cosine of the offline embedder's vectors."""


class Report(Record):
    """A whole ingest."""

    sources: tuple[SourceReport, ...]
    dropped: tuple[Dropped, ...]
    num_exemplars: int
    num_references: int
    num_evaluation_problems: int
    """Against which the snapshot was decontaminated."""
    nearest_survivors: tuple[Survivor, ...] = ()
    """The problems that the snapshot comes nearest to; without the generator's own splits."""

    def rows(self) -> list[dict[str, str | int]]:
        """One table row a source, then one a reason."""
        table: list[dict[str, str | int]] = [
            {"source": entry.source, "step": "kept", "why": entry.licence, "rows": entry.rows_out}
            for entry in self.sources
        ]
        table.extend(
            {"source": entry.source, "step": entry.step, "why": entry.reason, "rows": entry.count}
            for entry in self.dropped
        )
        return table


class DropCount:
    """Counts dropped rows while an ingest runs."""

    def __init__(self) -> None:
        self._examples: dict[tuple[str, str, str], list[str]] = defaultdict(list)

    def add(self, source: str, step: str, reason: str, example: str) -> None:
        """Count one row."""
        self._examples[source, step, reason].append(example)

    def dropped(self) -> tuple[Dropped, ...]:
        """Everything counted, in the order of first appearance."""
        return tuple(
            Dropped(
                source=source,
                step=step,
                reason=reason,
                count=len(examples),
                examples=tuple(examples[:_MAX_EXAMPLES]),
            )
            for (source, step, reason), examples in self._examples.items()
        )


def top_reasons(dropped: Iterable[Dropped]) -> str:
    """The most frequent reasons as a phrase."""
    most = sorted(dropped, key=lambda entry: -entry.count)[:_MAX_EXAMPLES]
    return ", ".join(f"{entry.count} {entry.reason}" for entry in most) or "no rows came"
