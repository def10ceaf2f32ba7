"""Work on many problems, cut into batches that a person sees begin and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kernel_core.records import Record


class Batch(Record):
    """Problems `start` to `end` (excluded) of a stage's `total`."""

    label: str
    """What the stage does with them: `problems` are asked, `winners` are chosen."""
    start: int
    end: int
    total: int

    @property
    def name(self) -> str:
        """As a list of batches shows it, counted from 1."""
        which = f"{self.start + 1} to {self.end}" if self.end - self.start > 1 else f"{self.end}"
        return f"{self.label} {which} of {self.total}"


Work = Callable[[Batch], str]
"""Does a batch, keeps what came of it, and says so in words."""


class EachBatch(Protocol):
    """How batches are worked on. `at_once` says that several may be: their work needs no policy."""

    def __call__(self, batches: Sequence[Batch], work: Work, *, at_once: bool) -> None: ...


def in_order(batches: Sequence[Batch], work: Work, *, at_once: bool) -> None:
    """One after another, told to nothing."""
    for batch in batches:
        work(batch)
