"""Places run one command at a time with GPUs of one role. The command ends with the process that asked.

On this host a place is a process with its GPUs made visible. With `placement.cluster: ray` it is a bundle of
a placement group (`ray_places.py`). Learners, the sampler's process and the vLLM server all run at places.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError
from kernel_core.python_module import module_command
from kernel_core.runs.placement import environment_with
from kernel_core.store import Store


class WorkerPlace(Protocol):
    """Location of one command; each method may raise `WorkersLost` where a cluster has no such place now."""

    def free_address(self) -> tuple[str, int]:
        """Return a host and a port that a command may serve on, as this process reaches it."""
        ...

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> None:
        """Start a command after the one before; `log` takes its output, and may be on a shared disk."""
        ...

    def has_ended(self) -> bool:
        """Return True if the command has ended, or its host is gone."""
        ...

    def end(self) -> None:
        """Stop the command with everything that it started, and wait for it."""
        ...


class Places(Protocol):
    """Places of one role, numbered as its processes are."""

    each: Sequence[WorkerPlace]
    host: str
    """Address of this process as commands at these places reach it."""
    is_here: bool
    """True if they are on this host."""

    def close(self) -> None:
        """Release the places."""
        ...


class LocalPlace:
    """A place on this host, with some of its GPUs; without `gpus` a command sees what this process sees."""

    host = "127.0.0.1"
    through: Sequence[str] = ()
    """Wrapper command that runs the rest of its line as a child of this process."""

    def __init__(self, gpus: tuple[int, ...] = ()) -> None:
        self._gpus = gpus
        self._process: subprocess.Popen[bytes] | None = None

    def free_address(self) -> tuple[str, int]:
        """See `WorkerPlace`."""
        with socket.socket() as free:
            free.bind((self.host, 0))
            return self.host, int(free.getsockname()[1])

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> None:
        """See `WorkerPlace`."""
        self.end()
        shown = environment_with(self._gpus) if self._gpus else dict(os.environ)
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(log.open("ab")) if log is not None else None
            self._process = subprocess.Popen(
                [*self.through, *module_command("kernel_core.places.while_open", *command)],
                env={**shown, **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """See `WorkerPlace`."""
        return self._process is None or self._process.poll() is not None

    def end(self) -> None:
        """See `WorkerPlace`."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()


class LocalPlaces:
    """Places on this host."""

    host, is_here = LocalPlace.host, True

    def __init__(self, each: Sequence[LocalPlace]) -> None:
        self.each: Sequence[WorkerPlace] = each

    def close(self) -> None:
        """Do nothing."""


def places_of_learners(config: TrainConfig) -> Places:
    """Return a place with one GPU, or one processor, for each learner."""
    if config.placement.cluster == "ray":
        return _on_cluster(config, config.num_learners)
    gpus = config.placement.learn
    return LocalPlaces([LocalPlace(gpus[rank : rank + 1]) for rank in range(config.num_learners)])


def place_of_sampler(config: TrainConfig) -> Places:
    """Return the one place of the process that samples."""
    if config.placement.cluster == "ray":
        return _on_cluster(config, 1)
    return LocalPlaces([LocalPlace(config.placement.sample)])


def log_in(store: Store, name: str) -> Path | None:
    """Return a file of a run's folder for the output of its processes; None where the folder is not local."""
    if not store.is_local:
        return None
    folder = Path(store.root.removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def shared_folder(store: Store) -> Path:
    """Return the run's folder, for processes of other hosts.

    Raises `ConfigError` where it is no absolute path.
    """
    folder = Path(store.root.removeprefix("file://"))
    if not store.is_local or not folder.is_absolute():
        raise ConfigError(
            f"learners and samplers on other hosts read and write files of the run, and {store.root} is no "
            "absolute path; set root to a folder that all hosts have at the same path"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _on_cluster(config: TrainConfig, count: int) -> Places:
    try:
        from kernel_core.places.ray_places import RayPlaces
    except ImportError as error:
        raise ConfigError(
            f"placement.cluster=ray, but Ray is not installed ({error}); install kernel-dojo[cluster]"
        ) from error
    return RayPlaces(config.gym.ray_address, "GPU" if config.policy_on_gpu else "CPU", count)
