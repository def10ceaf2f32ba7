"""Artifacts of Prefect. They live in its database; each names the file that has the whole of its content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from kernel_core.errors import redacted
from kernel_core.report.markdown import MAX_ROWS, cell_value, fitted
from kernel_core.report.pages import Page, Rows
from kernel_core.store import Store


def show(shown: Rows | Page) -> None:
    """Publish a page, or at most `MAX_ROWS` rows of a table."""
    if isinstance(shown, Page):
        text = fitted(shown.blocks, shown.store.path())
        create_markdown_artifact(text, key=shown.key, description=redacted(shown.description))
        return
    rows = [{name: cell_value(value) for name, value in row.items()} for row in shown.rows[:MAX_ROWS]]
    cut = f" The first {MAX_ROWS} of {len(shown.rows)} rows." if len(shown.rows) > MAX_ROWS else ""
    create_table_artifact(rows, key=shown.key, description=shown.description + cut)


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
        text = fitted(blocks, self._store.path())
        if self._artifact is None:
            self._artifact = create_markdown_artifact(text, key=self._key, description=self._description)
        else:
            with get_client(sync_client=True) as client:
                client.update_artifact(self._artifact, ArtifactUpdate(data=text))
