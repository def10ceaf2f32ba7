"""The policy, the judge and the retriever that a task works with, opened and closed together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from kernel_core.config import RolloutStageConfig
from kernel_core.gym.contract.requests import Gym
from kernel_core.policy.protocol import Policy
from kernel_core.retrieval.protocol import Retriever
from kernel_core.runs.host_gpus import require_gpu
from kernel_core.runs.judges import JUDGED, judging
from kernel_core.runs.resolve import locate_index
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.gpu import gpu_slot


class Tools(NamedTuple):
    """Parts that a conversation needs, and the verdicts that the root keeps."""

    policy: Policy
    gym: Gym
    retriever: Retriever | None
    memory: Store
    """Store of the root: verdicts so far, and problems that pay for nothing."""


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
