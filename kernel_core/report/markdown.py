"""Markdown that a web page can show: finite numbers, few rows, little text, and nothing in it that runs."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_core.errors import redacted

MAX_ROWS = 1000
MAX_BYTES = 1_000_000
"""Most bytes of a page: above 1.5 MB Prefect's server refuses the event of an artifact."""


def finite(value: Any) -> Any:
    """Return the value, or None for a number that is not finite: one infinity makes the UI show raw text."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cell_value(value: Any) -> Any:
    """Return a cell of a table: four digits of a number, text without secrets."""
    value = finite(value)
    if isinstance(value, float):
        return round(value, 4)
    return redacted(value) if isinstance(value, str) else value


def tables(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return each heading and its table as blocks of markdown."""
    return [
        block
        for title, rows in sections.items()
        for block in (f"## {title}", "\n".join(markdown_table(rows)))
    ]


def fitted(blocks: Sequence[str], folder: str) -> str:
    """Return blocks of markdown, as many as fit, and where the files are."""
    kept: list[str] = []
    left = MAX_BYTES
    for block in blocks:
        left -= len(block.encode()) + 2
        if left < 0:
            kept.append(f"The first {len(kept)} of {len(blocks)} parts; the rest is too long for a page.")
            break
        kept.append(block)
    return redacted("\n\n".join([*kept, f"Files: `{folder}`"]))


def picture(name: str, png: bytes) -> str:
    """Return a picture that needs no file: a browser cannot reach the run's folder."""
    return f"![{name}](data:image/png;base64,{base64.b64encode(png).decode()})"


def code_block(source: str) -> str:
    """Return source as a block of code that it cannot close: its fence is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", source)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{source}\n{fence}"


def link_to(key: str, words: str) -> str:
    """Return a link to another artifact of the same server."""
    return f"[{words}](/artifacts/key/{key})"


def artifact_key(words: str) -> str:
    """Return words as Prefect wants a key: lower case, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return rows as the lines of a table."""
    if not rows:
        return ["(nothing)"]
    names = list(rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows[:MAX_ROWS]]
    return [_line(names), _line(["---"] * len(names)), *map(_line, cells)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
