"""Torch process group of the learners of one start, on one host or on several.

The trainer has the store in which they find one another. Each start has names of its own there, since the
store outlives it, with addresses of processes that are gone.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
import struct
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from kernel_core.places.workers import START

_ADDRESS_OF = 0x8915
"""SIOCGIFADDR: the address of a network interface."""


class Meeting:
    """Rendezvous on the trainer's side: the store at `address`, for as long as this object lives."""

    def __init__(self, host: str) -> None:
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        self.address = f"{host}:{self._store.port}"


def form_group(meeting: str, rank: int, size: int, *, is_cuda: bool, limit_s: float) -> Any:
    """Join the others (gloo; with `is_cuda` NCCL as well). Gives a second group, for writing files.

    `limit_s` is how long they wait for one another, here and in each exchange.
    """
    host, _, port = meeting.rpartition(":")
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", _interface_to(host, int(port)))
    store = PrefixStore(os.environ[START], TCPStore(host, int(port), is_master=False))
    limit = datetime.timedelta(seconds=limit_s)
    backend = "cpu:gloo,cuda:nccl" if is_cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    return dist.new_group(backend="gloo", timeout=limit)


def _interface_to(host: str, port: int) -> str:
    """Return the network interface that reaches the trainer: a host's own name often means the loopback."""
    with socket.create_connection((host, port)) as connected:
        address = connected.getsockname()[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(asking, _ADDRESS_OF, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    raise OSError(f"no network interface has the address {address}, by which {host} is reached")
