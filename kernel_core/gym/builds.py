"""The judge's side of CUDA C++: each text is built once in the judge's life, in a cage of its own."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from kernel_core.errors import GymUnavailable
from kernel_core.gym.claims import BuildFailed, Built, CompilerFault, Sources
from kernel_core.gym.cuda_toolkit import toolkit
from kernel_core.gym.limits import Cage
from kernel_core.gym.runs import Answer, Conversation, Died, cage_folder
from kernel_core.gym.zygote import Zygote
from kernel_core.store import digest_of

_DEADLINE_S = 180.0
_MEMORY_BYTES = 12 << 30
_MAX_PROCESSES = 64
_FILE_BYTES = 256 << 20
_KEPT = 64
_CORES_BY_BUILD = 6


@dataclass(frozen=True, slots=True)
class Extension:
    """What was built; `name` is of its sources."""

    name: str
    library: bytes
    """For the candidate's process."""
    image: bytes
    """Device code alone, for the replay."""


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """What the compiler said of which line of which `part` (`cpp` or `cuda`; empty if unknown)."""

    reason: str
    part: str = ""
    line: int = 0


class Builder:
    """Threads may ask at once; the same sources are built once."""

    def __init__(self, zygote: Zygote, base: str, architecture: str) -> None:
        """`architecture` is a GPU's, as in `90`."""
        self._zygote, self._base, self._architecture = zygote, base, architecture
        self._known: OrderedDict[str, Extension | NotBuilt] = OrderedDict()
        # Three compilers a build: candidates' own deadlines run on while others' are at work.
        self._turns = threading.Semaphore(max(1, len(os.sched_getaffinity(0)) // _CORES_BY_BUILD))
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def build(self, sources: Sources) -> Extension | NotBuilt:
        """Raises `GymUnavailable` when the compilers cannot work."""
        name = f"extension_{digest_of([sources.model_dump(), self._architecture])[:16]}"
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._known:
                with self._turns:
                    outcome = self._build(name, sources)
                self._keep(name, outcome)
            return self._known[name]

    def _keep(self, name: str, outcome: Extension | NotBuilt) -> None:
        with self._lock:
            self._known[name] = outcome
            while len(self._known) > _KEPT:
                forgotten, _ = self._known.popitem(last=False)
                self._locks.pop(forgotten, None)

    def _build(self, name: str, sources: Sources) -> Extension | NotBuilt:
        if toolkit() is None:
            raise GymUnavailable(
                "a candidate in CUDA C++ needs the CUDA toolkit, and there is none; install it, or set "
                "CUDA_HOME to its folder"
            )
        with cage_folder(self._base) as (folder, user_id):
            cage = Cage(folder, user_id, _MEMORY_BYTES, int(_DEADLINE_S), _MAX_PROCESSES, _FILE_BYTES)
            talk = Conversation(self._zygote.spawn("build", cage), _DEADLINE_S)
            try:
                request: dict[str, Any] = {
                    "sources": sources.model_dump() | {"name": name},
                    "architecture": self._architecture,
                }
                answer = talk.ask(request, (Built, BuildFailed, CompilerFault))
            finally:
                talk.end()
        match answer:
            case Died():
                return NotBuilt(f"the compiler gave up: {answer.reason}")
            case Answer(claim=CompilerFault() as fault):
                raise GymUnavailable(
                    f"the compiler could not work: {fault.fault}; free disk space or memory, then run again"
                )
            case Answer(claim=BuildFailed() as failed):
                return NotBuilt(failed.failed, failed.part, failed.line)
            case Answer(claim=Built() as built, blob=blob):
                whole = bytes(blob)
                return Extension(name, whole[: built.library_bytes], whole[built.library_bytes :])
        raise AssertionError(answer)
