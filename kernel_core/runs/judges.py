"""Judges of a run's stages, with the memory of its root."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

JUDGED = "_judged"
"""Beside the runs of a root: what was judged once is not judged again by any of them."""

_kept: dict[tuple[str, str], Gym] | None = None
"""Judges kept open between the stages of a process, by device and settings; None without `judges_kept`."""
_in_background: list[tuple[Gym, threading.Thread]] = []
"""Kept judges that work in the background, and the threads that wait for their verdicts."""
log = logging.getLogger(__name__)


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
        _in_background.clear()


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
    for busy, thread in _in_background:
        if busy is _kept[key]:
            thread.join()
    try:
        yield _kept[key]
    except GymUnavailable:
        # The next try gets a new one.
        _kept.pop(key).close()
        raise


def judge_in_background(gym: Gym, requests: Sequence[JudgeRequest]) -> None:
    """Begin to judge requests for the root's memory, while this process goes on with other work.

    `judging` with the same settings waits for the end, and the stage then finds the verdicts. Without
    `judges_kept` nothing is begun.
    """
    if _kept is None:
        return
    thread = threading.Thread(target=_judge, args=(gym, requests), daemon=True, name="judge in background")
    _in_background.append((gym, thread))
    thread.start()


def _judge(gym: Gym, requests: Sequence[JudgeRequest]) -> None:
    try:
        gym.judge(requests)
    except Exception as error:  # the stage that needs the verdicts asks again, and raises what lasts
        log.warning("judging in the background ended early: %s", error)
    else:
        log.info("judged %d answers in the background", len(requests))
