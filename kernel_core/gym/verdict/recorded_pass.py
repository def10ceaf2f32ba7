"""Records of passes by a candidate's process: claims, until they are replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernel_core.gym.channel.framing import close_all
from kernel_core.gym.channel.messages import Kernel, Launch
from kernel_core.gym.oracle.input_families import Draw

_WORK = ("inputs", "constants", "operations", "outputs")


@dataclass(slots=True)
class Recorded:
    """The work of one pass, and of others that did the same."""

    trials: dict[int, Draw]
    """The trials with this work, and the families of their inputs."""
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    trace: dict[str, Any] | None
    constants: bytes
    memory: tuple[int, ...]
    """Descriptors of a GPU's memory that the pass took from outside."""

    @property
    def last_draw(self) -> Draw:
        """The family of the inputs of the last trial in which this was done."""
        return self.trials[max(self.trials)]

    @property
    def knows_its_inputs(self) -> bool:
        """True if host code looked at what lies in tensors, so that other inputs may mean other work."""
        return self.trace is not None and bool(self.trace.get("reads_data"))

    def trials_of(self, draw: Draw) -> list[int]:
        """The numbers of the trials with inputs of a family."""
        return [number for number, family in self.trials.items() if family == draw]

    def does_as(self, other: Recorded) -> bool:
        """Return True if the same operators and kernels are called in the same order, with the same scalars
        on tensors of the same forms. They must find the same in the host's memory.

        What lies in a GPU's memory from outside is not compared: with what the later pass found there its
        work is replayed on inputs of each family, and must be right.
        """
        mine, theirs = self.trace, other.trace
        if mine is None or theirs is None:
            return mine is theirs and self.launches == other.launches
        shared = min(len(self.kernels), len(other.kernels))  # constants of later passes come after
        return (
            self.kernels[:shared] == other.kernels[:shared]
            and all(mine.get(part) == theirs.get(part) for part in _WORK)
            and self.constants == other.constants
        )

    def close(self) -> None:
        """Give the memory back."""
        close_all(self.memory)
        self.memory = ()


def joined(known: list[Recorded], new: Recorded) -> list[Recorded]:
    """The distinct works, the newest last. The newest of equal works stands for an earlier one, and the
    memory of the earlier one is released."""
    kept = []
    for old in known:
        if old.does_as(new):
            new.trials = old.trials | new.trials
            old.close()
        else:
            kept.append(old)
    return [*kept, new]
