"""The policy, the judge and the retriever that a task works with, opened and closed together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from kernel_core.config import GymConfig, RolloutStageConfig, suited
from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.requests import Gym
from kernel_core.policy.protocol import Policy
from kernel_core.retrieval.protocol import Retriever
from kernel_core.runs.resolve import locate_index
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.gpu import gpu_slot, require_gpu

JUDGED = "_judged"
"""Beside the runs of a root: what was judged once is not judged again by any of them."""


class Tools(NamedTuple):
    """What holds a conversation."""

    policy: Policy
    gym: Gym
    retriever: Retriever | None
    memory: Store
    """What the root keeps: what was judged, and which problems pay for nothing."""


StageConfig = TypeVar("StageConfig", bound=RolloutStageConfig)


def suited_to(config: StageConfig, weights: str | None) -> StageConfig:
    """The settings of the kind of model that is in a folder, where they were left out."""
    policy, rollout = suited(config.policy, config.rollout, weights)
    return config.model_copy(update={"policy": policy, "rollout": rollout})


_kept: dict[str, Gym] | None = None
"""Judges that stay open between the stages of one process; None where that was not asked for."""


@contextlib.contextmanager
def judges_kept() -> Iterator[None]:
    """Judges opened inside the block serve every stage in it: starting them takes seconds."""
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


@contextlib.contextmanager
def judging(config: GymConfig, run: Run, gpus: tuple[int, ...] = ()) -> Iterator[Gym]:
    """The judge, on `gpus` where it is placed, with the root's memory of what was judged."""
    from kernel_core.gym.pool.open_gym import open_gym

    memory = Store(run.root).child(JUDGED)
    if _kept is None:
        with open_gym(config, memory, gpus) as gym:
            yield gym
        return
    key = f"{run.root} {config.model_dump_json()} {gpus}"
    if key not in _kept:
        _kept[key] = open_gym(config, memory, gpus)
    try:
        yield _kept[key]
    except GymUnavailable:
        # The next try gets a new one.
        _kept.pop(key).close()
        raise


@contextlib.contextmanager
def opened(
    config: RolloutStageConfig,
    run: Run,
    *,
    weights: str | None,
    corpus: str | None = None,
) -> Iterator[Tools]:
    """Tools of a stage: `weights` is a folder or None for what the config names; `corpus` a run's name."""
    from kernel_core.policy import open_policy
    from kernel_core.retrieval.search import open_retriever

    policy, judge = config.policy_here, config.gym
    require_gpu(policy, judge)
    index = locate_index(run, corpus)
    retriever = open_retriever(index, config=config.rollout.retrieval) if index is not None else None
    with (
        gpu_slot(policy.device, judge.device, places=config.placement),
        contextlib.closing(open_policy(policy, weights)) as writer,
        judging(judge, run, config.placement.judge) as gym,
    ):
        yield Tools(writer, gym, retriever, Store(run.root).child(JUDGED))
