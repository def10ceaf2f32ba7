"""Exemplars as Parquet: an explicit schema with a version, the same bytes for the same rows."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from kernel_core.errors import Corrupt
from kernel_core.records import Exemplar

SCHEMA_VERSION = "2"

_VERSION_KEY = b"exemplars_schema"
_NUMBERS = {
    "task_level": pa.int32(),
    "task_id": pa.int32(),
    "claimed_correct": pa.bool_(),
    "claimed_speedup": pa.float64(),
    "verified_speedup": pa.float64(),
    "predicted_speedup": pa.float64(),
}
_NULLABLE = frozenset({*_NUMBERS, "verified"})
SCHEMA = pa.schema(
    [
        pa.field(name, _NUMBERS.get(name, pa.string()), nullable=name in _NULLABLE)
        for name in Exemplar.model_fields
    ],
    metadata={_VERSION_KEY: SCHEMA_VERSION.encode()},
)


def to_parquet(exemplars: Sequence[Exemplar]) -> bytes:
    """The bytes of a Parquet file with these rows in this order."""
    columns = {name: [getattr(exemplar, name) for exemplar in exemplars] for name in SCHEMA.names}
    buffer = io.BytesIO()
    # Long texts fill no dictionary, and statistics over them are noise.
    pq.write_table(
        pa.table(columns, schema=SCHEMA),
        buffer,
        compression="zstd",
        use_dictionary=[name for name in SCHEMA.names if name not in ("reference_code", "kernel_code", "id")],
        write_statistics=False,
        row_group_size=4096,
    )
    return buffer.getvalue()


def read_table(data: bytes, where: str) -> pa.Table:
    """The table in Parquet bytes. Raises `Corrupt` for damage and for another schema version."""
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError) as error:
        raise Corrupt(f"{where} is not a Parquet file: {error}; remove it and run again") from error
    version = (table.schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if version != SCHEMA_VERSION or not table.schema.equals(SCHEMA, check_metadata=False):
        raise Corrupt(
            f"{where} has exemplar schema {version}, this version reads {SCHEMA_VERSION}; "
            "run `dojo ingest` again"
        )
    return table


def to_exemplars(table: pa.Table, where: str) -> list[Exemplar]:
    """Each row as a record. Raises `Corrupt` for a row that is none."""
    try:
        return [Exemplar.model_validate(row) for row in table.to_pylist()]
    except (ValidationError, UnicodeDecodeError) as error:
        raise Corrupt(f"{where} holds a row that is no exemplar: {error}") from error
