"""Environment of `verifiers` (0.4, its v1 interface) with our problems, prompts, feedback and rewards.

    import verifiers.v1 as vf
    from kernel_core.interop.verifiers_environment import load_environment

    environment = load_environment(suite="generated", limit=100, turns=3)

An installed `kernel-dojo` also has the module `kernel_dojo`, which verifiers finds by the id `kernel-dojo`:
`vf-eval kernel-dojo`. The environment judges on this machine, or by a judge service (`judge_url`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

from kernel_core.config import EnvironmentConfig, GymConfig
from kernel_core.dialogue.environment import EpisodeSource, open_source
from kernel_core.dialogue.episode import Episode
from kernel_core.errors import NotAProblem
from kernel_core.gym.contract.requests import Gym
from kernel_core.records import NotJudged
from kernel_core.runs.configure import build

ID = "kernel-dojo"
_JUDGEMENTS = 64
"""Requests that wait for a judge at once."""


class KernelTask(vf.Task[vf.TaskData]):
    """A problem. Its rewards come from the conversation, so it has none of its own."""


class KernelTasksetConfig(vf.TasksetConfig):
    """Settings of the problems and of a conversation; see `kernel_core.config.EnvironmentConfig`."""

    suite: str = "generated"
    limit: int | None = 100
    turns: int = 3
    rewards: str = "dojo/speed"
    settings: dict[str, Any] = Field(default_factory=dict)
    """Any other settings of `EnvironmentConfig`, nested."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """A task a problem; the prompt is our own first prompt."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        super().__init__(config)
        self.source = _source(config)

    def load(self) -> Iterator[KernelTask]:
        """Load the tasks, in order."""
        for id_ in self.source.problems:
            *system, prompt = self.source.begin(id_).messages
            data = vf.TaskData(
                id=id_,
                name=id_,
                prompt=prompt["content"],
                system_prompt=system[0]["content"] if system else None,
            )
            yield KernelTask(data, self.config.task)


class KernelEnvironmentConfig(vf.EnvConfig):
    """Settings of the policy's seat and the judge."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    """A plain chat: a policy writes kernels, and no tool runs where the policy is sampled."""
    judge_url: str | None = None
    """A judge service; empty: judges of this process."""
    judge_key_var: str = "DOJO_SERVE_KEY"
    """The environment variable with the service's key."""
    judge: dict[str, Any] = Field(default_factory=dict)
    """Settings of `GymConfig` for judges of this process."""


class KernelEnvironment(vf.Env[KernelEnvironmentConfig]):
    """A conversation with feedback between answers; its reward is the worth of the last kernel."""

    _gym: Gym | None = None

    async def start(self) -> None:
        """Open the judges."""
        self._threads = ThreadPoolExecutor(_JUDGEMENTS, thread_name_prefix="judgement")
        self._gym = await asyncio.to_thread(_open_gym, self.config)

    async def stop(self) -> None:
        """Close the judges."""
        if self._gym is not None:
            await asyncio.to_thread(self._gym.close)
            self._threads.shutdown(wait=False)

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Run one conversation. A fault of the judge fails the episode, and is no reward."""
        taskset = self.taskset
        assert isinstance(taskset, KernelTaskset)
        assert task.data.id is not None
        episode = taskset.source.begin(task.data.id)
        async with agents.agent.interaction(task) as conversation:
            segment = await conversation.turn()
            while not segment.terminated:
                await self._take(episode, segment.last_reply)
                if episode.done:
                    break
                segment = await conversation.turn(episode.messages[-1]["content"])
        trace = conversation.trace
        trace.record_reward("kernel", episode.total)
        for index, turn in enumerate(episode.turns):
            trace.record_metric(f"correct_{index}", float(turn.evaluation.correct))
        last = episode.turns[-1].evaluation if episode.turns else None
        trace.record_metric("correct", float(last is not None and last.correct))
        if last is not None and last.speedup is not None:
            trace.record_metric("speedup", last.speedup)
        elif last is not None and last.predicted_speedup is not None:
            trace.record_metric("predicted_speedup", last.predicted_speedup)

    async def _take(self, episode: Episode, answer: str) -> None:
        assert self._gym is not None, "the environment is used inside `serving()`"
        request = episode.request(answer)
        loop = asyncio.get_running_loop()
        [outcome] = await loop.run_in_executor(self._threads, self._gym.judge, [request])
        if isinstance(outcome, NotJudged):
            raise NotAProblem(outcome.reason)
        episode.take(answer, request, outcome)


def load_environment(
    judge_url: str | None = None, judge: dict[str, Any] | None = None, **taskset: Any
) -> KernelEnvironment:
    """Open the environment; `taskset` are fields of `KernelTasksetConfig`, `judge` settings of
    `GymConfig`."""
    sys.modules.setdefault("kernel_dojo", sys.modules[__name__])  # verifiers finds a taskset by import
    return KernelEnvironment(
        KernelEnvironmentConfig(
            taskset=KernelTasksetConfig(id=ID, **taskset), judge_url=judge_url, judge=judge or {}
        )
    )


def _source(config: KernelTasksetConfig) -> EpisodeSource:
    settings = dict(config.settings)
    problems = {"suite": config.suite, "limit": config.limit, **settings.pop("problems", {})}
    rollout = {"turns": config.turns, **settings.pop("rollout", {})}
    values = {"problems": problems, "rollout": rollout, "rewards": config.rewards, **settings}
    return open_source(build(EnvironmentConfig, values))


def _open_gym(config: KernelEnvironmentConfig) -> Gym:
    if config.judge_url is None:
        from kernel_core.gym.pool.open_gym import open_gym

        return open_gym(build(GymConfig, config.judge))
    from kernel_core.serve.client import JudgeClient

    return JudgeClient(config.judge_url, os.environ[config.judge_key_var], at_once=_JUDGEMENTS)


__all__ = ["KernelEnvironment", "KernelTaskset", "load_environment"]
