"""Rows of a source as they come, streamed, their columns checked against the published ones.

A column that is missing, renamed, added or of another type stops the ingest and is named. A single row
that cannot be read is refused, counted and the rest kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernel_core.corpus.layouts import OWN_LAYOUT
from kernel_core.corpus.refusal import RowRefused
from kernel_core.corpus.registry import ColumnType, Registry, Source, unavailable
from kernel_core.corpus.table import SCHEMA
from kernel_core.errors import CallerError
from kernel_core.records import Exemplar

_BATCH_ROWS = 256
_MAX_LINE_BYTES = 4_000_000
"""A JSON line beyond this is refused unread: the two texts that are kept have 150,000 characters at most."""
_PYTHON_TYPES: dict[ColumnType, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "list of string": (list,),
}
_COMPUTED = ("id", "reference_hash", "kernel_hash", "source", "source_revision")
_REQUIRED = [
    name for name, field in Exemplar.model_fields.items() if field.is_required() and name not in _COMPUTED
]
"""Columns that a file of exemplars must have."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: where it stood, the layout of its columns, and its values or why they cannot be read."""

    position: int
    layout: str
    values: Mapping[str, Any] | RowRefused


@dataclass(frozen=True, slots=True)
class _Damaged:
    """Rows of a file with bytes that cannot be read."""

    rows: int
    why: str


def stream_rows(source: Source, registry: Registry) -> Iterator[Row]:
    """The rows of a hub or file source, in order.

    Raises `SourceUnavailable` when the hub cannot be reached and `CallerError` for columns that are not the
    published ones.
    """
    if source.kind == "hub":
        yield from _numbered(_hub_tables(source), source, registry)
    elif source.repository.endswith(".jsonl"):
        yield from _json_rows(source, registry)
    else:
        yield from _numbered(_parquet_tables(source), source, registry)


def check_columns(columns: Mapping[str, str], source: Source, registry: Registry) -> str:
    """The layout that these columns and types are; anything else is a `CallerError` naming the column."""
    layout = source.layout or _layout_of(columns, source, registry)
    published = own_columns() if layout == OWN_LAYOUT else registry.layouts[layout]
    came = f"the columns that came: {', '.join(sorted(columns))}"
    for name in _REQUIRED if layout == OWN_LAYOUT else published:
        if name not in columns:
            raise CallerError(f"source {source.name}: column {name} of {layout} is missing; {came}")
    for name, kind in columns.items():
        if name not in published:
            raise CallerError(f"source {source.name}: column {name} is not one of {layout}'s; {came}")
        widened = kind == "int" and published[name] == "float"  # JSON writes 2.0 as 2
        if kind not in ("null", published[name]) and not widened:
            raise CallerError(
                f"source {source.name}: column {name} is {kind}, {layout} publishes {published[name]}; {came}"
            )
    return layout


def own_columns() -> dict[str, str]:
    """The columns of a file of exemplars; those that are computed may be left out and are not believed."""
    return {field.name: _arrow_kind(field.type) for field in SCHEMA}


def _layout_of(columns: Mapping[str, str], source: Source, registry: Registry) -> str:
    """The layout of a local file: the one that it shares most columns with."""
    candidates = {name: set(published) for name, published in registry.layouts.items()}
    candidates[OWN_LAYOUT] = set(own_columns())
    shared = {name: len(published & set(columns)) for name, published in candidates.items()}
    best = max(shared, key=lambda name: shared[name])
    if shared[best] == 0:
        raise CallerError(
            f"source {source.name}: its columns are those of no layout ({', '.join(candidates)}); "
            f"the columns that came: {', '.join(sorted(columns))}"
        )
    return best


def _hub_tables(source: Source) -> Iterator[pa.Table]:
    from datasets import load_dataset

    for split in source.splits:
        try:
            rows = load_dataset(
                source.repository,
                data_files=source.files,
                split=split,
                revision=source.revision,
                streaming=True,
            )
            yield from rows.with_format("arrow").iter(batch_size=_BATCH_ROWS)
        except ValueError as error:  # the library's word for a split that is not there
            raise CallerError(f"source {source.name}, split {split}: {str(error).splitlines()[0]}") from error
        except Exception as error:  # the hub client's transport, and so its errors, differ by version
            raise unavailable(source, error) from error


def _parquet_tables(source: Source) -> Iterator[pa.Table | _Damaged]:
    try:
        with pq.ParquetFile(source.repository, page_checksum_verification=True) as file:
            yield file.schema_arrow.empty_table()  # the columns of an empty file are checked too
            for group in range(file.num_row_groups):
                yield from _row_group(file, group)
    except (pa.ArrowInvalid, OSError) as error:
        raise CallerError(f"{source.repository} is not a Parquet file that can be read: {error}") from error


def _row_group(file: pq.ParquetFile, group: int) -> Iterator[pa.Table | _Damaged]:
    """A row group in batches; where its bytes are damaged, how many of its rows are lost."""
    left = file.metadata.row_group(group).num_rows
    try:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group]):
            left -= batch.num_rows
            yield pa.Table.from_batches([batch])
    except (pa.ArrowInvalid, OSError) as error:
        yield _Damaged(left, f"row group {group}: {str(error).splitlines()[0][:120]}")


def _numbered(tables: Iterator[pa.Table | _Damaged], source: Source, registry: Registry) -> Iterator[Row]:
    position = 0
    for table in tables:
        if isinstance(table, _Damaged):
            for _ in range(table.rows):
                yield Row(position, source.layout or OWN_LAYOUT, RowRefused("damaged in the file", table.why))
                position += 1
            continue
        kinds = {field.name: _arrow_kind(field.type) for field in table.schema}
        layout = check_columns(kinds, source, registry)
        columns = {field.name: _values(table.column(field.name)) for field in table.schema}
        for index in range(table.num_rows):
            yield Row(position, layout, _decoded({name: column[index] for name, column in columns.items()}))
            position += 1


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Text stays bytes here: one row of broken Unicode must not cost the others."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return list(column.cast(pa.large_binary()).to_pylist())
    if _arrow_kind(column.type) == "list of string":
        return list(column.cast(pa.large_list(pa.large_binary())).to_pylist())
    return list(column.to_pylist())


def _decoded(values: dict[str, Any]) -> Mapping[str, Any] | RowRefused:
    for name, value in values.items():
        try:
            if isinstance(value, bytes):
                values[name] = value.decode("utf-8")
            elif isinstance(value, list):
                values[name] = [item.decode("utf-8") for item in value if item is not None]
        except UnicodeDecodeError:
            return RowRefused("broken Unicode", f"column {name}")
    return values


def _arrow_kind(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {_arrow_kind(kind.value_type)}"
    for name, matches in (
        ("string", (pa.types.is_string, pa.types.is_large_string)),
        ("int", (pa.types.is_integer,)),
        ("float", (pa.types.is_floating,)),
        ("bool", (pa.types.is_boolean,)),
        ("null", (pa.types.is_null,)),
    ):
        if any(match(kind) for match in matches):
            return name
    return str(kind)


def _json_rows(source: Source, registry: Registry) -> Iterator[Row]:
    """JSON lines. The first readable row shows the layout; each row must then have exactly its columns."""
    layout: str | None = None
    with Path(source.repository).open("rb") as file:
        for position, line in enumerate(file):
            if not line.strip():
                continue
            values = _json_values(line)
            if isinstance(values, RowRefused):
                yield Row(position, layout or OWN_LAYOUT, values)
                continue
            kinds = {name: _python_kind(value) for name, value in values.items()}
            layout = layout or check_columns(kinds, source, registry)
            yield Row(position, layout, _checked(values, kinds, layout, source, registry))


def _json_values(line: bytes) -> dict[str, Any] | RowRefused:
    if len(line) > _MAX_LINE_BYTES:
        return RowRefused("too long", f"a line of {len(line)} bytes")
    try:
        values = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return RowRefused("broken Unicode", "the line is not UTF-8")
    except (ValueError, RecursionError) as error:
        return RowRefused("not JSON", str(error)[:80])
    return values if isinstance(values, dict) else RowRefused("not JSON", "the line is not an object")


def _checked(
    values: dict[str, Any], kinds: Mapping[str, str], layout: str, source: Source, registry: Registry
) -> Mapping[str, Any] | RowRefused:
    try:
        check_columns(kinds, source.model_copy(update={"layout": layout}), registry)
    except CallerError as error:
        return RowRefused("other columns than the first row's", str(error).partition(": ")[2][:120])
    return values


def _python_kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "list of string" if all(isinstance(item, str) for item in value) else "list"
    for kind, types in _PYTHON_TYPES.items():
        if type(value) in types:
            return kind
    return type(value).__name__
