"""Judges of a run's stages, with the memory of its root."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.requests import Gym
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

JUDGED = "_judged"
"""Beside the runs of a root: what was judged once is not judged again by any of them."""

_kept: dict[tuple[str, str], Gym] | None = None
"""Judges kept open between the stages of a process, by device and settings; None without `judges_kept`."""


@contextlib.contextmanager
def judges_kept() -> Iterator[None]:
    """Let judges that are opened inside the block serve every stage in it: starting them takes seconds."""
    global _kept
    if _kept is not None:
        yield
        return
    _kept = {}
    try:
        yield
    finally:
        for gym in _kept.values():
            gym.close()
        _kept = None


def close_gpu_judges() -> None:
    """Close kept judges of a GPU: the memory that they keep for later inputs is missing to learning."""
    kept = {} if _kept is None else _kept
    for key in [key for key in kept if key[0] == "cuda"]:
        kept.pop(key).close()


@contextlib.contextmanager
def judging(config: GymConfig, run: Run, gpus: tuple[int, ...] = ()) -> Iterator[Gym]:
    """Yield the judge, on `gpus` where it is placed, with the root's memory of verdicts."""
    from kernel_core.gym.pool.open_gym import open_gym

    memory = Store(run.root).child(JUDGED)
    if _kept is None:
        with open_gym(config, memory, gpus) as gym:
            yield gym
        return
    key = config.device, f"{run.root} {config.model_dump_json()} {gpus}"
    if key not in _kept:
        _kept[key] = open_gym(config, memory, gpus)
    try:
        yield _kept[key]
    except GymUnavailable:
        # The next try gets a new one.
        _kept.pop(key).close()
        raise
