"""Protocol by which long work reports progress, to a terminal or a page alike."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Progress callback, such as `progress("judge", done=3, total=64)`: one bar for each label.

    It is called often, so an implementation must be cheap.
    """

    def __call__(self, label: str, done: int, total: int) -> None: ...


def silent(label: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""
