"""The judges of one node of a Ray cluster, or of one of its GPUs.

An actor there owns an ordinary fork root; a worker of Ray's never runs what a candidate wrote.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.pool.judge_host import HostLost, JudgeLost, Line, LocalHost

NODE_LEFT = "the node left the cluster"
_LOOK_EVERY_S = 1.0
_START_TIMEOUT_S = 240.0
_CLOSE_TIMEOUT_S = 40.0
_GRACE_S = 30.0
"""Time for an answer's way, beyond the time that a node itself waits for its judge."""


class NodeJudges:
    """The judges of an actor's node, or of its GPU.

    Faults of the gym are answers, not exceptions, which Ray would wrap.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = GymConfig.model_validate(config)
        self._host: LocalHost | None = None
        self._lines: dict[int, Line] = {}
        self._numbers = itertools.count()

    def introduce(self) -> dict[str, Any]:
        """Start the fork root; report the version and the GPUs of its judges."""
        try:
            self._host = LocalHost(self._config)
        except GymUnavailable as error:
            return {"unavailable": str(error)}
        return {"version": GYM_VERSION, "gpus": [str(gpu) for gpu in ray.get_gpu_ids()]}

    def connect(self, place: int) -> dict[str, Any]:
        """A new line's number."""
        assert self._host is not None
        try:
            line = self._host.connect(place)
        except (GymUnavailable, JudgeLost) as error:
            return {"unavailable": str(error)}
        number = next(self._numbers)
        self._lines[number] = line
        return {"line": number}

    def ask(self, number: int, header: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """The judge's answer."""
        try:
            return {"answer": self._lines[number].ask(header, patience_s)}
        except JudgeLost as error:
            return {"lost": str(error)}

    def hang_up(self, number: int) -> None:
        """Leave a seat."""
        self._lines.pop(number).hang_up()

    def end_judge(self, place: int) -> None:
        """Kill a judge."""
        assert self._host is not None
        self._host.end_judge(place)

    def close(self) -> None:
        """End every process of the node's judges."""
        if self._host is not None:
            self._host.close()


class RayHost:
    """The judges of one node, or of one of its GPUs, as the caller sees them."""

    def __init__(self, node: dict[str, Any], config: GymConfig, places: int) -> None:
        self.node_id: str = node["NodeID"]
        self.name = f"node {node['NodeManagerAddress']} ({self.node_id[:6]})"
        self._config = config.model_copy(update={"cluster": "local", "workers": places})
        self.num_places = places
        self._on_gpu = config.device == "cuda"
        seats = places * (config.in_flight if self._on_gpu else 1)
        self._options = {
            "num_cpus": 0 if self._on_gpu else places,
            "num_gpus": 1 if self._on_gpu else 0,
            "max_concurrency": 2 * seats + 2,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(self.node_id, soft=False),
        }
        self._lock = threading.Lock()
        self._actor: Any = None
        self._left = threading.Event()

    def start(self) -> str:
        """Start the fork root there; gives a name for it. Raises `GymUnavailable` or `JudgeLost`."""
        hello = self._introduced()
        return f"{self.name}, GPU {', '.join(hello['gpus'])}" if self._on_gpu else self.name

    def leave(self) -> None:
        """The node is gone; all waits for it end."""
        self._left.set()

    def connect(self, place: int) -> Line:
        """See `Host`; an actor that died is replaced."""
        with self._lock:
            if self._actor is None:
                self._introduced()
            actor = self._actor
        connected = self.call(actor, "connect", place, patience_s=_START_TIMEOUT_S)
        if "unavailable" in connected:
            raise GymUnavailable(connected["unavailable"])
        return _RayLine(self, actor, connected["line"])

    def end_judge(self, place: int) -> None:
        """See `Host`."""
        actor = self._actor
        if actor is not None:
            with contextlib.suppress(JudgeLost):
                self.call(actor, "end_judge", place, patience_s=_START_TIMEOUT_S)

    def close(self) -> None:
        """See `Host`."""
        is_gone = self._left.is_set()
        self._left.set()
        actor, self._actor = self._actor, None
        if actor is not None and not is_gone:
            with contextlib.suppress(RayError):
                ray.get(actor.close.remote(), timeout=_CLOSE_TIMEOUT_S)
            ray.kill(actor)

    def call(self, actor: Any, method: str, *arguments: Any, patience_s: float) -> Any:
        """The actor's answer. Raises `JudgeLost`; an actor that is gone will be replaced."""
        try:
            return self._wait(getattr(actor, method).remote(*arguments), patience_s)
        except _ActorLost:
            if self._actor is actor:
                self._actor = None
            raise

    def _introduced(self) -> dict[str, Any]:
        """Start an actor with a fork root of our own version; gives what it reported."""
        self._check_node()
        actor = ray.remote(NodeJudges).options(**self._options).remote(self._config.model_dump())
        try:
            hello: dict[str, Any] = self._wait(actor.introduce.remote(), _START_TIMEOUT_S)
        except JudgeLost:
            ray.kill(actor)
            raise
        if hello.get("version") != GYM_VERSION:
            ray.kill(actor)
            other = f"its judges are of version {hello.get('version')}, and {GYM_VERSION} is wanted"
            raise GymUnavailable(hello.get("unavailable", other))
        self._actor = actor
        return hello

    def _wait(self, reference: Any, patience_s: float) -> Any:
        give_up = time.monotonic() + patience_s
        try:
            while not ray.wait([reference], timeout=_LOOK_EVERY_S)[0]:
                self._check_node()
                if time.monotonic() > give_up:
                    raise JudgeLost(f"no answer within {patience_s:.0f} s")
            return ray.get(reference)
        except RayError as error:
            if self.node_id not in alive_nodes():
                self.leave()
            self._check_node()
            raise _ActorLost(f"the actor was lost: {_last_line(error)}") from error

    def _check_node(self) -> None:
        if self._left.is_set():
            raise HostLost(NODE_LEFT)


class _ActorLost(JudgeLost):
    """All judges of a node are lost."""


class _RayLine:
    """A line to a judge of a node."""

    def __init__(self, host: RayHost, actor: Any, number: int) -> None:
        self._host = host
        self._actor = actor
        self._number = number

    def ask(self, header: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """See `Line`."""
        answer: dict[str, Any] = self._host.call(
            self._actor, "ask", self._number, header, patience_s, patience_s=patience_s + _GRACE_S
        )
        if "lost" in answer:
            raise JudgeLost(answer["lost"])
        payload: dict[str, Any] = answer["answer"]
        return payload

    def hang_up(self) -> None:
        """See `Line`."""
        self._actor.hang_up.remote(self._number)


def alive_nodes() -> dict[str, dict[str, Any]]:
    """The nodes by their ids; none when the cluster's head is gone."""
    try:
        return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    except RayError:
        return {}


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
