"""Artifacts that the UI can show: finite numbers, few rows, little text, and nothing in it that runs.

Artifacts live in Prefect's database; the whole of what they show is a file, which each one names.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from kernel_core.errors import redacted
from kernel_core.store import Store

MAX_ROWS = 1000
MAX_BYTES = 1_000_000
"""Most bytes of a page: above 1.5 MB the server refuses the artifact's event."""


def finite(value: Any) -> Any:
    """The value, or None for a number that is not finite: one infinity makes the UI show raw text."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Publish rows as a table artifact: finite numbers, at most `MAX_ROWS` rows, shown to 4 digits."""
    shown = [{name: _shown(value) for name, value in row.items()} for row in rows[:MAX_ROWS]]
    cut = f" The first {MAX_ROWS} of {len(rows)} rows." if len(rows) > MAX_ROWS else ""
    create_table_artifact(shown, key=key, description=description + cut)


def _shown(value: Any) -> Any:
    """A cell: four digits of a number, text without secrets."""
    value = finite(value)
    return (
        round(value, 4) if isinstance(value, float) else redacted(value) if isinstance(value, str) else value
    )


def page(
    key: str,
    title: str,
    store: Store,
    sections: Mapping[str, Sequence[Mapping[str, Any]]],
    lead: Sequence[str] = (),
    description: str | None = None,
) -> None:
    """Publish a markdown page: `lead`, a table under each heading, and where the files are."""
    publish(key, [f"# {title}", *lead, *tables(sections)], store, description or f"{title}.")


def tables(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Each heading and its table as markdown."""
    blocks = []
    for heading, rows in sections.items():
        blocks += [f"## {heading}", "\n".join(markdown_table(rows))]
    return blocks


def publish(key: str, blocks: Sequence[str], store: Store, description: str) -> None:
    """Publish blocks of markdown, as many as fit, and where the files are."""
    create_markdown_artifact(_markdown(blocks, store), key=key, description=redacted(description))


def link(key: str, store: Store, file: str, description: str) -> None:
    """Publish a link to a file of a run."""
    address = store.path(file)
    url = Path(address).resolve().as_uri() if store.is_local else address
    create_link_artifact(url, key=key, link_text=file, description=description)


class LivePage:
    """A page of markdown that changes while a person looks at it: one artifact, not a version each time."""

    def __init__(self, key: str, store: Store, description: str) -> None:
        self._key, self._store, self._description = key, store, description
        self._artifact: UUID | None = None

    def show(self, blocks: Sequence[str]) -> None:
        """Show these blocks in place of the ones before."""
        text = _markdown(blocks, self._store)
        if self._artifact is None:
            self._artifact = create_markdown_artifact(text, key=self._key, description=self._description)
        else:
            with get_client(sync_client=True) as client:
                client.update_artifact(self._artifact, ArtifactUpdate(data=text))


def _markdown(blocks: Sequence[str], store: Store) -> str:
    kept, left = [], MAX_BYTES
    for block in blocks:
        left -= len(block.encode()) + 2
        if left < 0:
            kept.append(f"The first {len(kept)} of {len(blocks)} parts; the rest is too long for a page.")
            break
        kept.append(block)
    return redacted("\n\n".join([*kept, f"Files: `{store.path()}`"]))


def picture(name: str, png: bytes) -> str:
    """A picture as markdown that needs no file: the browser cannot reach the run's folder."""
    return f"![{name}](data:image/png;base64,{base64.b64encode(png).decode()})"


def code_block(source: str) -> str:
    """Source as a block of code that it cannot close: its fence is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", source)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{source}\n{fence}"


def link_to(key: str, words: str) -> str:
    """Markdown that leads to another artifact of the same server."""
    return f"[{words}](/artifacts/key/{key})"


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as the lines of a markdown table."""
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


def artifact_key(words: str) -> str:
    """Words as Prefect wants a key: lower case, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
