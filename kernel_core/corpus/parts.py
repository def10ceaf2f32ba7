"""One source read to its end: its usable rows, sealed, so that a killed ingest reads no source twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernel_core.config import IngestConfig
from kernel_core.corpus import table
from kernel_core.corpus.answered_source import Answering, answered_exemplars
from kernel_core.corpus.generator_source import draw_settings, generated_exemplars
from kernel_core.corpus.layouts import to_exemplar
from kernel_core.corpus.normalise import NORMALISER_VERSION
from kernel_core.corpus.refusal import RowRefused
from kernel_core.corpus.registry import Registry, Source
from kernel_core.corpus.report import DropCount, Dropped, SourceReport
from kernel_core.corpus.rows import stream_rows
from kernel_core.progress import Progress
from kernel_core.records import Exemplar
from kernel_core.store import Store, digest_of

INGEST_VERSION = "2"
"""Changes whenever the same sources give another snapshot."""

_ROWS = "exemplars.parquet"
_PROGRESS_EVERY = 256


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Usable rows of one source, with the report and reasons of the dropped ones."""

    exemplars: list[Exemplar]
    report: SourceReport
    dropped: tuple[Dropped, ...]


def read_part(
    source: Source,
    config: IngestConfig,
    store: Store,
    registry: Registry,
    progress: Progress,
    answering: Answering | None = None,
) -> SourceRows:
    """One source's usable rows, read now or taken from the part that an earlier run sealed."""
    identity = {
        "versions": [INGEST_VERSION, NORMALISER_VERSION, table.SCHEMA_VERSION],
        "source": source.model_dump(),
        "columns": registry.layouts,
        "generator": draw_settings(source, config) if source.kind == "generator" else None,
    }
    part = store.child(f"parts/{source.name}-{digest_of(identity)[:16]}")
    if not part.sealed():
        if source.kind == "generator":
            rows = _numbered(generated_exemplars(source, config))
        elif source.is_answered:
            rows = _numbered(answered_exemplars(source, answering, progress))
        else:
            rows = _published(source, registry)
        _read_part(source, rows, part, progress)
    manifest = part.open_sealed("part")
    where = part.path(_ROWS)
    exemplars = table.to_exemplars(table.read_table(part.read(_ROWS), where), where)
    dropped = tuple(Dropped.model_validate(entry) for entry in manifest.meta["dropped"])
    return SourceRows(exemplars, SourceReport.model_validate(manifest.meta["report"]), dropped)


_Read = Iterator[tuple[int, Exemplar | RowRefused, tuple[str, ...]]]


def _read_part(source: Source, read: _Read, part: Store, progress: Progress) -> None:
    drops = DropCount()
    notes: dict[str, int] = {}
    rows: list[Exemplar] = []
    keys: set[str] = set()
    rows_in = 0
    for position, exemplar, row_notes in read:
        rows_in += 1
        if isinstance(exemplar, RowRefused):
            drops.add(source.name, "read", exemplar.reason, f"row {position}: {exemplar.detail}")
        elif exemplar.id in keys:
            drops.add(source.name, "read", "row key seen before", exemplar.row_key)
        else:
            keys.add(exemplar.id)
            rows.append(exemplar)
            for note in row_notes:
                notes[note] = notes.get(note, 0) + 1
        if rows_in % _PROGRESS_EVERY == 0:
            progress(f"read {source.name}", rows_in, rows_in)
    progress(f"read {source.name}", rows_in, rows_in)
    report = SourceReport(
        source=source.name,
        kind=source.kind,
        revision=source.revision,
        licence=source.licence or ", ".join(sorted({row.licence for row in rows})),
        attribution=source.attribution,
        rows_in=rows_in,
        notes=notes,
    )
    meta = {"report": report.model_dump(), "dropped": [entry.model_dump() for entry in drops.dropped()]}
    part.seal("part", {_ROWS: part.write(_ROWS, table.to_parquet(rows))}, meta)


def _numbered(rows: Iterator[Exemplar] | Iterator[Exemplar | RowRefused]) -> _Read:
    return ((position, row, ()) for position, row in enumerate(rows))


def _published(source: Source, registry: Registry) -> _Read:
    for row in stream_rows(source, registry):
        if isinstance(row.values, RowRefused):
            yield row.position, row.values, ()
            continue
        try:
            # A file in a published layout is a copy of that set: its terms are the set's.
            terms = _terms_of_layout(row.layout, source, registry)
            exemplar, notes = to_exemplar(row.values, row.layout, terms)
        except RowRefused as refused:
            yield row.position, refused, ()
        else:
            yield row.position, exemplar, notes


def _terms_of_layout(layout: str, source: Source, registry: Registry) -> Source:
    if source.licence:
        return source
    publisher = next((entry for entry in registry.sources.values() if entry.layout == layout), source)
    return source.model_copy(update={"licence": publisher.licence, "attribution": publisher.attribution})
