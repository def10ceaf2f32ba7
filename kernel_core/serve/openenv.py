"""OpenEnv's interface to the judge: reset, step and state, over HTTP and over a WebSocket.

An episode is one conversation about one problem. An action carries the policy's whole completion. The
observation carries the next prompt as chat messages, and the verdict on the last kernel. The messages of the
WebSocket and the bodies of the HTTP calls are those of openenv-core 0.3: its client works unchanged.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_core.dialogue.environment import EpisodeSource
from kernel_core.dialogue.episode import Episode
from kernel_core.errors import CallerError, NotFound
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.policy.protocol import Message
from kernel_core.records import Evaluation

Judge = Callable[[str, JudgeRequest], Awaitable[Evaluation]]
"""Judges a request under an id: the same id is judged once."""
_EPISODES_KEPT = 4096
"""Episodes of HTTP clients, which never say that they leave; the one unused for longest goes first."""


class Action(BaseModel):
    """A policy's answer to the last observation's messages."""

    model_config = ConfigDict(extra="forbid")

    completion: str
    metadata: dict[str, Any] = Field(default_factory=dict)


class Observation(BaseModel):
    """The next prompt, and the verdict on the kernel before it."""

    messages: list[Message]
    """Empty at the end of the episode."""
    problem_id: str
    verdict: str | None = None
    feedback: str = ""
    speedup: float | None = None
    predicted_speedup: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class State(BaseModel):
    """The state of an episode."""

    episode_id: str | None = None
    step_count: int = 0
    problem_id: str | None = None
    total_reward: float = 0.0
    done: bool = False


class EpisodeStep(BaseModel):
    """The answer to reset and step."""

    observation: Observation
    reward: float | None = None
    done: bool = False


class Environment:
    """One client's episodes, one at a time. A new reset ends the episode before it."""

    def __init__(self, source: EpisodeSource, judge: Judge) -> None:
        self._source = source
        self._judge = judge
        self._episode: Episode | None = None
        self._id: str | None = None

    async def reset(
        self, seed: int | None = None, episode_id: str | None = None, problem_id: str | None = None
    ) -> EpisodeStep:
        """Begin an episode. `seed` chooses the problem where `problem_id` names none."""
        self._id = episode_id or uuid.uuid4().hex
        self._episode = self._source.begin(problem_id or self._source.draw(seed), judge_seed=seed)
        observation = Observation(
            messages=list(self._episode.messages),
            problem_id=self._episode.problem.id,
            metadata={"episode_id": self._id},
        )
        return EpisodeStep(observation=observation)

    async def step(self, action: Action) -> EpisodeStep:
        """Judge an answer."""
        episode = self._episode
        if episode is None or episode.done:
            raise CallerError("no episode is under way; call reset first")
        request = episode.request(action.completion)
        evaluation = await self._judge(f"{self._id}/{len(episode.turns)}", request)
        reward = episode.take(action.completion, request, evaluation)
        observation = Observation(
            messages=[] if episode.done else list(episode.messages),
            problem_id=episode.problem.id,
            verdict=str(evaluation.verdict),
            feedback=evaluation.feedback,
            speedup=evaluation.speedup,
            predicted_speedup=evaluation.predicted_speedup,
            metadata={"episode_id": self._id, "terms": episode.terms()[-1].model_dump()},
        )
        return EpisodeStep(observation=observation, reward=reward, done=episode.done)

    def state(self) -> State:
        """Return the state of the episode under way."""
        episode = self._episode
        if episode is None:
            return State()
        return State(
            episode_id=self._id,
            step_count=len(episode.turns),
            problem_id=episode.problem.id,
            total_reward=episode.total,
            done=episode.done,
        )


class Episodes:
    """Environments of HTTP clients, by client and episode id."""

    def __init__(self, make: Callable[[str], Environment]) -> None:
        self._make = make
        self._environments: OrderedDict[tuple[str, str], Environment] = OrderedDict()

    async def reset(self, client: str, body: dict[str, Any]) -> EpisodeStep:
        """Begin an episode; its id is in the observation's metadata."""
        environment = self._make(client)
        step = await environment.reset(**_known(body))
        self._environments[client, step.observation.metadata["episode_id"]] = environment
        while len(self._environments) > _EPISODES_KEPT:
            self._environments.popitem(last=False)
        return step

    async def step(self, client: str, body: dict[str, Any]) -> EpisodeStep:
        """Judge the answer `action` of the episode `episode_id`."""
        return await self._of(client, body.get("episode_id")).step(_action(body.get("action")))

    def state(self, client: str, episode_id: str | None) -> State:
        """Return the state of an episode."""
        return self._of(client, episode_id).state()

    def _of(self, client: str, episode_id: Any) -> Environment:
        if (client, episode_id) not in self._environments:
            raise NotFound(f"no episode {episode_id!r}; reset begins one and gives its episode_id")
        self._environments.move_to_end((client, episode_id))
        return self._environments[client, episode_id]


async def answer(environment: Environment, message: Any) -> dict[str, Any] | None:
    """Answer one WebSocket message; None to `close`. Raises `CallerError` for an invalid one."""
    kind = message.get("type") if isinstance(message, dict) else None
    match kind:
        case "reset":
            step = await environment.reset(**_known(message.get("data") or {}))
            return {"type": "observation", "data": step.model_dump()}
        case "step":
            step = await environment.step(_action(message.get("data")))
            return {"type": "observation", "data": step.model_dump()}
        case "state":
            return {"type": "state", "data": environment.state().model_dump()}
        case "close":
            return None
    raise CallerError(f"message type {kind!r} is none of reset, step, state, close")


def schema() -> dict[str, Any]:
    """Return the JSON schemas of actions, observations and states."""
    return {
        "action": Action.model_json_schema(),
        "observation": Observation.model_json_schema(),
        "state": State.model_json_schema(),
    }


def _known(data: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of reset that are known here; OpenEnv's clients may send others."""
    return {name: data[name] for name in ("seed", "episode_id", "problem_id") if data.get(name) is not None}


def _action(data: Any) -> Action:
    try:
        return Action.model_validate(data)
    except ValidationError as error:
        raise CallerError(
            f"an action has `completion`, the policy's text: {error.errors()[0]['msg']}"
        ) from error
