"""The nodes of a Ray cluster: those that join are given work, those that leave lose theirs to the others.

What is known of candidates stays with the caller.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.pool.judge_host import JudgeLost
from kernel_core.gym.pool.judge_slot import JudgeSlot
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.pool.ray_node import NODE_LEFT, RayHost, alive_nodes
from kernel_core.places.ray_connection import CONNECTION
from kernel_core.places.ray_places import reserved_on

_LOOK_EVERY_S = 1.0


class RayCluster:
    """The nodes of a cluster, looked at every second."""

    def __init__(self, config: GymConfig, pool: PooledGym) -> None:
        self._config = config
        self._pool = pool
        self._hosts: dict[str, list[RayHost]] = {}
        self._starting: list[threading.Thread] = []
        self._closing = threading.Event()
        self._owns_connection = CONNECTION.open(config.ray_address)
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
            CONNECTION.close()

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
        """The hosts of a node: one for each GPU, or one with a judge for each processor. They are at most as
        many as wanted, of those that no placement group has."""
        on_gpu = self._config.device == "cuda"
        kind = "GPU" if on_gpu else "CPU"
        free = int(node["Resources"].get(kind, 0)) - reserved_on(node["NodeID"], kind)
        count = max(0, min(free, self._config.workers))
        if on_gpu:
            return [RayHost(node, self._config, 1) for _ in range(count)]
        return [RayHost(node, self._config, count)] if count else []

    def _start(self, host: RayHost) -> None:
        try:
            name = host.start()
        except (GymUnavailable, JudgeLost) as error:
            self._pool.refuse(host, host.name, str(error))
            return
        names = [name] if host.num_places == 1 else [f"{name}, judge {i}" for i in range(host.num_places)]
        places = [
            JudgeSlot(host, index, name, self._config, trusted=False) for index, name in enumerate(names)
        ]
        self._pool.arrive(host, places)


def open_cluster(config: GymConfig, pool: PooledGym) -> RayCluster:
    """Connect to a cluster and start judges on its nodes. Raises `GymUnavailable` when there is none."""
    cluster = RayCluster(config, pool)
    cluster.wait_for_first()
    return cluster
