"""Checkpoints that a promotion check has still to load: a training that goes on does not remove them."""

from __future__ import annotations

from kernel_core.store import Store

_FOLDER = "held"
MOST = 3
"""Holds of a run at once: the oldest ends where no check ever came for it."""


def hold(run: Store, checkpoint: str) -> None:
    """Keep a checkpoint of a run's store, such as `checkpoints/step-000010`, until it is released."""
    name = checkpoint.rsplit("/", 1)[-1]
    run.write_json(f"{_FOLDER}/{name}.json", {"folder": checkpoint})
    for old in sorted(held(run))[:-MOST]:
        run.remove(f"{_FOLDER}/{old}.json")


def release(run: Store, checkpoint: str) -> None:
    """Let a training remove the checkpoint again."""
    run.remove(f"{_FOLDER}/{checkpoint.rsplit('/', 1)[-1]}.json")


def held(run: Store) -> set[str]:
    """Return the names of the checkpoints that are held, such as `step-000010`."""
    return {name.removesuffix(".json") for name in run.names(_FOLDER)}
