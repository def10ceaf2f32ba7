"""Shared connection of a process to a Ray cluster, for judges and places."""

from __future__ import annotations

import os
import signal
import socket
import threading

import ray
from ray.exceptions import RayError

from kernel_core.errors import ConfigError, GymUnavailable

_REACH_TIMEOUT_S = 10.0


class _Connection:
    """Single connection of a process to a cluster, shared by all its users."""

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
                    "close what uses that one, or use one address"
                )
            self._users += 1
            return True

    def close(self) -> None:
        """Close the connection when its last user leaves."""
        with self._lock:
            self._users -= 1
            if not self._users:
                ray.shutdown()


CONNECTION = _Connection()


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
