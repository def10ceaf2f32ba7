"""The policy, the judge and the retriever that a task works with, opened and closed together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from kernel_core.config import GymConfig, PolicyConfig
from kernel_core.gym.protocol import Gym
from kernel_core.policy.protocol import Policy
from kernel_core.retrieval.protocol import Retriever
from kernel_core.run_policy import locate_index
from kernel_core.runs import Run
from kernel_core.store import Store
from tasks.gpu import gpu_slot

JUDGED = "_judged"
"""Beside the runs of a root: what was judged once is not judged again by any of them."""


class Tools(NamedTuple):
    """What holds a conversation."""

    policy: Policy
    gym: Gym
    retriever: Retriever | None


@contextlib.contextmanager
def judging(config: GymConfig, run: Run) -> Iterator[Gym]:
    """The judge with the root's memory of what was judged."""
    from kernel_core.gym import open_gym

    with open_gym(config, Store(run.root).child(JUDGED)) as gym:
        yield gym


@contextlib.contextmanager
def opened(
    policy: PolicyConfig,
    judge: GymConfig,
    run: Run,
    *,
    weights: str | None,
    corpus: str | None = None,
) -> Iterator[Tools]:
    """Tools for a run: `weights` is a folder or None for what the config names; `corpus` a run's name."""
    from kernel_core.retrieval.search import open_retriever

    from kernel_core.policy import open_policy

    with gpu_slot(policy.device, judge.device), judging(judge, run) as gym:
        index = locate_index(run, corpus)
        retriever = open_retriever(index) if index is not None else None
        with contextlib.closing(open_policy(policy, weights)) as writer:
            yield Tools(writer, gym, retriever)
