"""Verdict of one kernel as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def verdict_table(report: Mapping[str, Any]) -> Table:
    """Return the keys of `dojo judge --json` that have a value, each size beside the problem's own one."""
    own = report.get("in_place_of") or {}
    sizes = {
        name: f"{value} (own: {own[name]})" if name in own else value
        for name, value in (report.get("sizes") or {}).items()
    }
    table = Table(show_header=False, box=None)
    for name, value in ({**report, "sizes": sizes} if sizes else report).items():
        if value is not None and value != []:
            table.add_row(name, _in_words(value))
    return table


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(inner)}" for name, inner in value.items() if inner is not None)
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
