"""Judges on the nodes of a Ray cluster.

On each node an actor (on CUDA one for each GPU) owns an ordinary nursery; a worker of Ray's never runs what a
candidate wrote. Nodes that join are given work, nodes that leave lose theirs to the others. What is known of
candidates stays with the caller.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.host import Host, HostLost, JudgeLost, Line, LocalHost
from kernel_core.gym.place import Place
from kernel_core.gym.version import GYM_VERSION

_LOOK_EVERY_S = 1.0
_REACH_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 240.0
_CLOSE_TIMEOUT_S = 40.0
_GRACE_S = 30.0
"""Beyond what a node itself waits for its judge, how long its answer may be on the way."""
_NODE_LEFT = "the node left the cluster"


class Pool(Protocol):
    """Who is told of places that come and go (`pool.PooledGym`)."""

    @property
    def places(self) -> tuple[str, ...]: ...

    def announce(self, host: Host) -> None: ...

    def arrive(self, host: Host, places: Sequence[Place]) -> None: ...

    def refuse(self, host: Host, name: str, reason: str) -> None: ...

    def lose(self, host: Host, reason: str) -> None: ...


class NodeJudges:
    """What an actor owns: the judges of its node, or of its GPU. Faults of ours are answers, not exceptions,
    which Ray would wrap."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = GymConfig.model_validate(config)
        self._host: LocalHost | None = None
        self._lines: dict[int, Line] = {}
        self._numbers = itertools.count()

    def introduce(self) -> dict[str, Any]:
        """Start the nursery; say whose judges these are, and on which GPU."""
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
        """Start the nursery there; gives a name for it. Raises `GymUnavailable` or `JudgeLost`."""
        hello = self._introduced()
        return f"{self.name}, GPU {', '.join(hello['gpus'])}" if self._on_gpu else self.name

    def leave(self) -> None:
        """The node is gone: nobody waits for it any longer."""
        self._left.set()

    def connect(self, place: int) -> Line:
        """See `Host`; an actor that died is replaced."""
        with self._lock:
            if self._actor is None:
                self._introduced()
            actor = self._actor
        found = self.call(actor, "connect", place, patience_s=_START_TIMEOUT_S)
        if "unavailable" in found:
            raise GymUnavailable(found["unavailable"])
        return _RayLine(self, actor, found["line"])

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
        """What the actor answers. Raises `JudgeLost`; an actor that is gone will be replaced."""
        try:
            return self._wait(getattr(actor, method).remote(*arguments), patience_s)
        except _ActorLost:
            if self._actor is actor:
                self._actor = None
            raise

    def _introduced(self) -> dict[str, Any]:
        """Have an actor whose nursery is up, of our own version; what it said of itself."""
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
            if self.node_id not in _alive_nodes():
                self.leave()
            self._check_node()
            raise _ActorLost(f"the actor was lost: {_last_line(error)}") from error

    def _check_node(self) -> None:
        if self._left.is_set():
            raise HostLost(_NODE_LEFT)


class _ActorLost(JudgeLost):
    """Not only a judge, but all of a node's."""


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
        found: dict[str, Any] = answer["answer"]
        return found

    def hang_up(self) -> None:
        """See `Line`."""
        self._actor.hang_up.remote(self._number)


class RayCluster:
    """The nodes of a cluster, looked at every second."""

    def __init__(self, config: GymConfig, pool: Pool) -> None:
        self._config = config
        self._pool = pool
        self._hosts: dict[str, list[RayHost]] = {}
        self._starting: list[threading.Thread] = []
        self._closing = threading.Event()
        self._is_connected_by_us = _connect(config.ray_address)
        self._look()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def wait_for_first(self) -> None:
        """Until judges are ready on some node, or on none of them ever will be."""
        while not self._pool.places and any(thread.is_alive() for thread in self._starting):
            time.sleep(0.05)

    def close(self) -> None:
        """End the judges on every node."""
        self._closing.set()
        self._watcher.join()
        hosts = [host for hosts in self._hosts.values() for host in hosts]
        for thread in [threading.Thread(target=host.close) for host in hosts]:
            thread.start()
            self._starting.append(thread)
        for thread in self._starting:
            thread.join()
        if self._is_connected_by_us:
            _disconnect()

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        """Welcome nodes that are new, let go of those that left."""
        alive = _alive_nodes()
        for node_id in self._hosts.keys() - alive.keys():
            for host in self._hosts.pop(node_id):
                host.leave()
                self._pool.lose(host, _NODE_LEFT)
        for node_id in alive.keys() - self._hosts.keys():
            self._hosts[node_id] = hosts = self._hosts_of(alive[node_id])
            for host in hosts:
                self._pool.announce(host)
                thread = threading.Thread(target=self._start, args=(host,), daemon=True)
                self._starting.append(thread)
                thread.start()

    def _hosts_of(self, node: dict[str, Any]) -> list[RayHost]:
        """One for each GPU, or one with a judge for each processor, as many as are wanted."""
        if self._config.device == "cuda":
            gpus = int(node["Resources"].get("GPU", 0))
            return [RayHost(node, self._config, 1) for _ in range(min(gpus, self._config.workers))]
        count = min(int(node["Resources"].get("CPU", 0)), self._config.workers)
        return [RayHost(node, self._config, count)] if count else []

    def _start(self, host: RayHost) -> None:
        try:
            name = host.start()
        except (GymUnavailable, JudgeLost) as error:
            self._pool.refuse(host, host.name, str(error))
            return
        names = [name] if host.num_places == 1 else [f"{name}, judge {i}" for i in range(host.num_places)]
        places = [Place(host, index, one, self._config, trusted=False) for index, one in enumerate(names)]
        self._pool.arrive(host, places)


def open_cluster(config: GymConfig, pool: Pool) -> RayCluster:
    """Connect to a cluster and start judges on its nodes. Raises `GymUnavailable` when there is none."""
    cluster = RayCluster(config, pool)
    cluster.wait_for_first()
    return cluster


def _alive_nodes() -> dict[str, dict[str, Any]]:
    """By their ids; none when the cluster's head is gone."""
    try:
        return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    except RayError:
        return {}


_connections = 0
_connecting = threading.Lock()


def _connect(address: str) -> bool:
    """Whether this call, or one before it, made the connection that is used."""
    global _connections
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _connecting:
        if ray.is_initialized():
            _connections += _connections > 0
            return _connections > 0
        _refuse_unreachable(address)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RayError, RuntimeError) as error:
            raise GymUnavailable(_no_cluster(address, str(error))) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's own would end a run without a word
        _connections = 1
        return True


def _disconnect() -> None:
    global _connections
    with _connecting:
        _connections -= 1
        if _connections == 0:
            ray.shutdown()


def _refuse_unreachable(address: str) -> None:
    """Ray itself tries for minutes and then ends the process."""
    where = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, _, port = where.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=_REACH_TIMEOUT_S).close()
        except OSError as error:
            raise GymUnavailable(_no_cluster(where, str(error))) from error


def _no_cluster(address: str, reason: str) -> str:
    return (
        f"no Ray cluster at gym.ray_address={address} ({reason.splitlines()[0]}); start one with "
        "`ray start --head`, name another address, or set gym.cluster=local"
    )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
