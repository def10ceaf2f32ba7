"""Work on many problems, cut into batches that a person sees begin and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kernel_core.records import Record


class Batch(Record):
    """Problems `start` to `end` (excluded) of a stage's `total`."""

    label: str
    """The stage's work on the batch: `problems` are sampled, `winners` are selected."""
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
    """Strategy that runs a stage's batches; `at_once` permits concurrency, for work that needs no policy."""

    def __call__(self, batches: Sequence[Batch], work: Work, *, at_once: bool) -> None: ...


def in_order(batches: Sequence[Batch], work: Work, *, at_once: bool) -> None:
    """Run the batches one after another, without reporting progress."""
    for batch in batches:
        work(batch)
