"""Rounds of expert iteration as tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kernel_core.store import Store
from tasks.faults import retried_task

log = logging.getLogger(__name__)


@retried_task("keep winners", "rounds")
def keep_winners(evaluations: Sequence[Store], most: int, store: Store) -> None:
    """Seal the best and most diverse correct answers as chats."""
    from kernel_core.learn.cold_start.verified_chats import keep_verified

    kept = keep_verified(evaluations, most, store)
    log.info("%d winners of %d rounds kept in %s", kept, len(evaluations), store.root)
