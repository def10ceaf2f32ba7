"""The nodes of a Ray cluster: those that join are given work, those that leave lose theirs to the others.

What is known of candidates stays with the caller.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import Any

import ray
from ray.exceptions import RayError

from kernel_core.config import GymConfig
from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.gym.pool.judge_host import JudgeLost
from kernel_core.gym.pool.judge_slot import JudgeSlot
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.pool.ray_node import NODE_LEFT, RayHost, alive_nodes

_LOOK_EVERY_S = 1.0
_REACH_TIMEOUT_S = 10.0


class RayCluster:
    """The nodes of a cluster, looked at every second."""

    def __init__(self, config: GymConfig, pool: PooledGym) -> None:
        self._config = config
        self._pool = pool
        self._hosts: dict[str, list[RayHost]] = {}
        self._starting: list[threading.Thread] = []
        self._closing = threading.Event()
        self._owns_connection = _CONNECTION.open(config.ray_address)
        self._look()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def wait_for_first(self) -> None:
        """Wait until judges are ready on some node, or no node can have any."""
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
        if self._owns_connection:
            _CONNECTION.close()

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        """Welcome nodes that are new, let go of those that left."""
        alive = alive_nodes()
        for node_id in self._hosts.keys() - alive.keys():
            for host in self._hosts.pop(node_id):
                host.leave()
                self._pool.lose(host, NODE_LEFT)
        for node_id in alive.keys() - self._hosts.keys():
            self._hosts[node_id] = hosts = self._hosts_of(alive[node_id])
            for host in hosts:
                self._pool.announce(host)
                thread = threading.Thread(target=self._start, args=(host,), daemon=True)
                self._starting.append(thread)
                thread.start()

    def _hosts_of(self, node: dict[str, Any]) -> list[RayHost]:
        """The hosts of a node: one for each GPU, or one with a judge for each processor, at most as many as
        wanted."""
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
        places = [JudgeSlot(host, index, one, self._config, trusted=False) for index, one in enumerate(names)]
        self._pool.arrive(host, places)


def open_cluster(config: GymConfig, pool: PooledGym) -> RayCluster:
    """Connect to a cluster and start judges on its nodes. Raises `GymUnavailable` when there is none."""
    cluster = RayCluster(config, pool)
    cluster.wait_for_first()
    return cluster


class _Connection:
    """The one that a process may have to a cluster, shared by its gyms."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._address = ""
        self._users = 0

    def open(self, address: str) -> bool:
        """Open the connection; whether to close it later. A connection that the program made itself is used
        and left open."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with self._lock:
            if ray.is_initialized() and not self._users:
                return False
            if not self._users:
                _refuse_unreachable(address)
                _connect(address)
                self._address = address
            if address != self._address:
                raise ConfigError(
                    f"gym.ray_address={address}, but this process is connected to {self._address}; "
                    "close the gym that is open, or use one address"
                )
            self._users += 1
            return True

    def close(self) -> None:
        """The last one to leave cuts it."""
        with self._lock:
            self._users -= 1
            if not self._users:
                ray.shutdown()


_CONNECTION = _Connection()


def _connect(address: str) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RayError, RuntimeError) as error:
        raise GymUnavailable(_no_cluster(address, str(error))) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray's own handler would end a run silently


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
