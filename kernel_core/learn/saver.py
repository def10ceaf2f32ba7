"""Checkpoints written while training goes on.

A copy of the weights and of the optimiser is taken at once, in the memory of the host. A thread streams it to
the store, one checkpoint at a time. A kill meanwhile leaves an unsealed folder, which does not count, and the
checkpoint before it is there until the new one is sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from kernel_core.learn import checkpoint
from kernel_core.policy.trainable import Trainable
from kernel_core.store import Store


class Saver:
    """Saves the checkpoints of a store, in the background if wanted."""

    def __init__(self, store: Store, *, background: bool) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, "checkpoint") if background else None
        self._pending: Future[None] | None = None

    def save(
        self,
        step: int,
        policy: Trainable,
        optimiser: torch.optim.Optimizer | None,
        state: dict[str, Any],
        keep: int,
        score: Sequence[float] | None = None,
        shards: Callable[[], checkpoint.Files] | None = None,
    ) -> None:
        """Write what `checkpoint.draft` collects, after the checkpoint before; in the background perhaps
        later than on return."""
        self.wait()
        copied = self._thread is not None
        finish = checkpoint.draft(
            self._store, step, policy, optimiser, state, keep, score, shards, copied=copied
        )
        if self._thread is None:
            finish()
        else:
            self._pending = self._thread.submit(finish)

    def wait(self) -> None:
        """Wait until the last checkpoint is complete; raise its error, once."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
