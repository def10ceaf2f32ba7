"""A row that cannot be used: counted by its reason, never fatal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowRefused(Exception):
    """`reason` is one of few, for counting; `detail` is this row's own."""

    reason: str
    detail: str = ""
