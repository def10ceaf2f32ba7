"""Places on the nodes of a Ray cluster: a placement group, with a bundle for each process of a role.

An actor on the bundle starts the command and holds it as a local place does. When a node is lost, Ray finds
another for its bundles, and a new actor starts there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from kernel_core.errors import WorkersLost
from kernel_core.places.place import LocalPlace, WorkerPlace
from kernel_core.places.ray_connection import CONNECTION

FIND_S = 300.0
"""Longest wait for a node with room for a place, for example for one that joins after another was lost."""
_CALL_S = 60.0


class _NodePlace(LocalPlace):
    """A place as its actor has it: Ray has made its GPU visible.

    An actor that ends has its child killed by Ray. The child is a shell, so that `while_open` lives on and
    ends the command with everything that it started.
    """

    through = ("sh", "-c", '"$@"; exit', "sh")

    def __init__(self) -> None:
        super().__init__()
        self.host = ray.util.get_node_ip_address()


class RayPlace:
    """One bundle of a placement group."""

    def __init__(self, group: Any, bundle: int, kind: str) -> None:
        self._kind = kind
        self._options = {
            "num_cpus": int(kind == "CPU"),
            "num_gpus": int(kind == "GPU"),
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle),
        }
        self._actor: Any = None

    def free_address(self) -> tuple[str, int]:
        """See `WorkerPlace`."""
        host, port = self._call("free_address")
        return host, port

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> None:
        """See `WorkerPlace`."""
        self._call("start", list(command), dict(environment), log)

    def has_ended(self) -> bool:
        """See `WorkerPlace`."""
        try:
            return self._actor is None or bool(ray.get(self._actor.has_ended.remote(), timeout=_CALL_S))
        except GetTimeoutError:
            return False
        except RayError:
            return True

    def end(self) -> None:
        """See `WorkerPlace`. The actor ends too; the next command starts a new one, on any node."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with contextlib.suppress(RayError):
                ray.get(actor.end.remote(), timeout=_CALL_S)
            ray.kill(actor)

    def _call(self, method: str, *arguments: Any) -> Any:
        give_up = time.monotonic() + FIND_S
        while self._actor is None:
            self._actor = self._found(give_up)
        try:
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=_CALL_S)
        except RayError as error:
            self.end()
            raise WorkersLost(f"a node was lost while a command was started on it ({error})") from error

    def _found(self, give_up: float) -> Any:
        """Return an actor; None where it was lost at its start, before `give_up`."""
        actor = ray.remote(_NodePlace).options(**self._options).remote()
        try:
            ray.get(actor.free_address.remote(), timeout=max(1.0, give_up - time.monotonic()))
        except RayError as error:
            ray.kill(actor)
            if time.monotonic() > give_up:
                raise WorkersLost(
                    f"no node had a {self._kind} for a learner or the sampler within {FIND_S:.0f} s: lower "
                    "gym.workers or learners, or add a node; `ray status` shows what is free"
                ) from error
            time.sleep(1.0)
            return None
        return actor


class RayPlaces:
    """A placement group of the cluster."""

    is_here = False

    def __init__(self, address: str, kind: str, count: int) -> None:
        """`kind` is the resource that each of `count` bundles has one of: CPU or GPU."""
        self._owns_connection = CONNECTION.open(address)
        self.host: str = ray.util.get_node_ip_address()
        self._group = placement_group([{kind: 1}] * count, strategy="PACK")
        self.each: Sequence[WorkerPlace] = [RayPlace(self._group, bundle, kind) for bundle in range(count)]

    def close(self) -> None:
        """Stop what runs there, and release the bundles."""
        remove_placement_group(self._group)
        if self._owns_connection:
            CONNECTION.close()


def reserved_on(node_id: str, kind: str) -> int:
    """Return how much of a resource the placement groups have on a node."""
    groups = ray.util.placement_group_table().values()
    return sum(
        int(group["bundles"][bundle].get(kind, 0))
        for group in groups
        if group["state"] != "REMOVED"
        for bundle, node in group["bundles_to_node_id"].items()
        if node == node_id
    )
