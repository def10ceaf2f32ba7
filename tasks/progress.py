"""Progress of a stage: bars in a terminal, log lines elsewhere, an artifact in the UI."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.exceptions import PrefectException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from kernel_core.report.markdown import artifact_key

log = logging.getLogger(__name__)

ARTIFACT_EVERY_S = 5.0
LOG_EVERY_S = 30.0

_terminal: Progress | None = None


@contextlib.contextmanager
def terminal_bars(console: Console) -> Iterator[None]:
    """Show the progress of everything inside the block as bars on this console, if it is a terminal."""
    global _terminal
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    if not console.is_terminal:
        yield
        return
    with Progress(*columns, console=console, transient=True) as _terminal:
        try:
            yield
        finally:
            _terminal = None


class StageProgress:
    """A `kernel_core.progress.Progress` of one stage, shown in the log, the UI and the terminal.

    Safe to call thousands of times a second: the artifact and the log are written every few seconds.
    `main` is the label that the artifact follows; without one it follows whichever was called last.
    """

    def __init__(self, run: str, stage: str, main: str | None = None) -> None:
        self._key = artifact_key(f"{run}-{stage}-progress")
        self._stage = stage
        self._main = main
        self._artifact: UUID | None = None
        self._artifact_at = self._logged_at = time.monotonic() - ARTIFACT_EVERY_S
        self._bars: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def __call__(self, label: str, done: int, total: int) -> None:
        """Move the bar of `label`; any thread may."""
        with self._lock:
            self._show(label, done, total)

    def _show(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        complete = done >= total
        if _terminal is not None:
            self._move_bar(_terminal, label, done, total)
        elif now - self._logged_at > LOG_EVERY_S:
            self._logged_at = now
            log.info("%s: %s %d of %d", self._stage, label, done, total)
        followed = self._main is None or label == self._main
        if followed and (complete or now - self._artifact_at > ARTIFACT_EVERY_S):
            self._artifact_at = now
            self._publish(f"{label}: {done} of {total}", 100.0 * done / max(total, 1))

    def close(self) -> None:
        """Take the bars away."""
        if _terminal is not None:
            for bar in self._bars.values():
                _terminal.remove_task(bar)
        self._bars.clear()

    def __enter__(self) -> StageProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _move_bar(self, terminal: Progress, label: str, done: int, total: int) -> None:
        if label not in self._bars:
            self._bars[label] = terminal.add_task(f"{self._stage}: {label}", total=total)
        terminal.update(self._bars[label], completed=done, total=total)

    def _publish(self, description: str, percent: float) -> None:
        with may_be_missed(f"progress of {self._stage}"):
            if self._artifact is None:
                self._artifact = create_progress_artifact(percent, key=self._key, description=description)
            else:
                update_progress_artifact(self._artifact, progress=percent, description=description)


@contextlib.contextmanager
def may_be_missed(what: str) -> Iterator[None]:
    """Go on if the API cannot be reached: a picture of the work is not worth the work."""
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("%s not shown in the UI: %s", what, error)
