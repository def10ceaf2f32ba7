"""The judge's side of CUDA C++: each text is built once, in a sandbox of its own, and kept by content."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass

from kernel_core.errors import GymUnavailable, NotFound, StoreFault
from kernel_core.gym.channel.messages import BuildFailed, Built, CompilerFault, Sources
from kernel_core.gym.judge.compile_check import compiler_unavailable
from kernel_core.gym.sandbox.cuda_toolkit import toolkit
from kernel_core.gym.sandbox.fork_server import ForkServer
from kernel_core.gym.workers.child import Answer, Died, open_caged_child
from kernel_core.store import Store, digest_of

_log = logging.getLogger(__name__)

_DEADLINE_S = 180.0
_MEMORY_BYTES = 12 << 30
_MAX_PROCESSES = 64
_FILE_BYTES = 256 << 20
_KEPT = 64
_CORES_BY_BUILD = 6


@dataclass(frozen=True, slots=True)
class Extension:
    """A built extension; `name` is made from its sources."""

    name: str
    library: bytes
    """The library for the candidate's process."""
    image: bytes
    """Device code alone, for the replay."""
    products: frozenset[str]
    """Kinds of the products in the device code."""


class Builder:
    """Threads may build at once; the same sources are built once."""

    def __init__(self, fork_server: ForkServer, base: str, architecture: str, shelf: Store) -> None:
        """`architecture` is a GPU's, as in `90`. Built libraries are stored on the `shelf`. The shelf
        outlives a judge, and only judges may write to it."""
        self._fork_server, self._base, self._architecture = fork_server, base, architecture
        self.shelf = shelf
        self._known: OrderedDict[str, Extension | BuildFailed] = OrderedDict()
        # A build runs three compilers, and candidates' deadlines run on during builds of others.
        self._turns = threading.Semaphore(max(1, len(os.sched_getaffinity(0)) // _CORES_BY_BUILD))
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def build(self, sources: Sources) -> Extension | BuildFailed:
        """Raises `GymUnavailable` when the compilers cannot work."""
        name = f"extension_{digest_of([sources.model_dump(), self._architecture])[:16]}"
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._known:
                self._keep(name, self._find(name) or self._build_in_turn(name, sources))
            return self._known[name]

    def _build_in_turn(self, name: str, sources: Sources) -> Extension | BuildFailed:
        with self._turns:
            outcome = self._build(name, sources)
        if isinstance(outcome, Extension):
            self._lay_down(outcome)
        return outcome

    def _find(self, name: str) -> Extension | None:
        """The library that an earlier judge built."""
        try:
            library, image = self.shelf.read(f"{name}/library"), self.shelf.read(f"{name}/image")
            products = self.shelf.read(f"{name}/products").decode().split()
        except (NotFound, StoreFault):
            return None
        return Extension(name, library, image, frozenset(products))

    def _lay_down(self, built: Extension) -> None:
        """Store a built library. A full disk costs a later build but never a verdict. When there are too many
        libraries, arbitrary ones are removed."""
        try:
            self.shelf.write(f"{built.name}/image", built.image)
            self.shelf.write(f"{built.name}/products", " ".join(sorted(built.products)).encode())
            self.shelf.write(f"{built.name}/library", built.library)
            for name in self.shelf.names()[:-_KEPT]:
                self.shelf.remove(name)
        except StoreFault as error:
            _log.warning("a build is not kept: %s", error)

    def _keep(self, name: str, outcome: Extension | BuildFailed) -> None:
        with self._lock:
            self._known[name] = outcome
            while len(self._known) > _KEPT:
                forgotten, _ = self._known.popitem(last=False)
                self._locks.pop(forgotten, None)

    def _build(self, name: str, sources: Sources) -> Extension | BuildFailed:
        cuda_home = toolkit()
        if cuda_home is None:
            raise GymUnavailable(
                "a candidate in CUDA C++ needs the CUDA toolkit, and there is none; install it, or set "
                "CUDA_HOME to its folder"
            )
        with open_caged_child(
            self._fork_server,
            "build",
            self._base,
            _DEADLINE_S,
            memory_bytes=_MEMORY_BYTES,
            cpu_seconds=int(_DEADLINE_S),
            max_processes=_MAX_PROCESSES,
            file_bytes=_FILE_BYTES,
        ) as talk:
            request = {
                "name": name,
                "sources": sources.model_dump(),
                "architecture": self._architecture,
                "cuda_home": str(cuda_home),
            }
            answer = talk.ask(request, (Built, BuildFailed, CompilerFault))
        match answer:
            case Died():
                return BuildFailed(failed=f"the compiler gave up: {answer.reason}", part="", line=0)
            case Answer(claim=CompilerFault() as fault):
                raise compiler_unavailable(fault)
            case Answer(claim=BuildFailed() as failed):
                return failed
            case Answer(claim=Built() as built, blob=blob):
                whole = bytes(blob)
                library, image = whole[: built.library_bytes], whole[built.library_bytes :]
                return Extension(name, library, image, frozenset(built.products))
        raise AssertionError(answer)
