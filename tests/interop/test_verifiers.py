"""The environment for verifiers, where that is installed: tasks, and a conversation with a scripted agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from exploit_files import text_of

pytest.importorskip("verifiers.v1", reason="verifiers is an optional extra")

from kernel_core.interop.verifiers_environment import KernelEnvironment, load_environment

KERNEL = f"<KERNEL>\n{text_of('honest_softmax')}\n</KERNEL>"


class _Agent:
    """Gives prepared answers, and keeps what it was asked."""

    def __init__(self, answers: list[str]) -> None:
        self.heard: list[str | None] = []
        self.trace = SimpleNamespace(rewards={}, metrics={})
        self.trace.record_reward = self.trace.rewards.__setitem__
        self.trace.record_metric = self.trace.metrics.__setitem__
        self._answers = answers

    @asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[_Agent]:
        yield self

    async def turn(self, message: str | None = None) -> Any:
        self.heard.append(message)
        return SimpleNamespace(last_reply=self._answers[len(self.heard) - 1], terminated=False)


def _environment() -> KernelEnvironment:
    return load_environment(
        suite="tests/exploits/problems/softmax_rows.py",
        limit=1,
        turns=2,
        rewards="dojo/correct",
        judge={"workers": 1, "trials": 1, "compile_gate": False},
        settings={"problems": {"split": "all"}},
    )


def test_a_task_is_a_problem_with_our_prompt() -> None:
    [task] = _environment().taskset
    assert task.data.id == "file/softmax_rows"
    assert "class Model(nn.Module)" in task.data.prompt
    assert "Triton" in task.data.system_prompt


def test_feedback_comes_between_answers_and_the_reward_is_the_last_kernels() -> None:
    environment = _environment()
    [task] = environment.taskset
    agent = _Agent(["no kernel", KERNEL])

    async def play() -> None:
        await environment.start()
        try:
            await environment.run(task, SimpleNamespace(agent=agent))  # type: ignore[arg-type]
        finally:
            await environment.stop()

    asyncio.run(play())
    assert agent.heard[0] is None
    assert "<KERNEL>" in str(agent.heard[1])
    assert agent.trace.rewards["kernel"] > 1.0
    assert (agent.trace.metrics["correct_0"], agent.trace.metrics["correct_1"]) == (0.0, 1.0)
