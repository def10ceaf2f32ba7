"""Rows as the bytes of a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def schema_of(*columns: tuple[pa.DataType, str]) -> pa.Schema:
    """Return a schema: types, each with the names of the columns that follow one another, between spaces."""
    return pa.schema([(name, kind) for kind, names in columns for name in names.split()])


def packed(rows: Iterable[dict[str, Any]], schema: pa.Schema | None = None) -> bytes:
    """Return rows as a file; without a `schema` their values decide the types."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink, compression="zstd")
    return sink.getvalue()


def unpacked(data: bytes, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a file, or some of its columns. Raises `pyarrow.ArrowException` for another file."""
    # Not `read_table`: for a single file too, that imports all of pyarrow.dataset and with it pandas.
    rows: list[dict[str, Any]] = pq.ParquetFile(io.BytesIO(data)).read(columns=columns).to_pylist()
    return rows
