"""The judge's interface for the rest of the system: requests in, evaluations out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import Field

from kernel_core.progress import Progress, silent
from kernel_core.records import Candidate, Constant, Evaluation, NoCandidate, NotJudged, Problem, Record


class JudgeRequest(Record):
    """Judge this candidate for this problem."""

    problem: Problem
    candidate: Candidate | NoCandidate
    sizes: dict[str, Constant] | None = None
    """Overrides of the problem's constants; None takes `problem.cpu_constants` on a CPU, none on a GPU."""
    seed: int | None = None
    """The seed of the secret input draws; None draws a fresh one. It never reaches the candidate's process.
    """
    timing: bool = True
    """Measure the speed of a correct candidate; predictions cost nothing and are always there."""
    fast: bool = Field(False)
    """Leave out larger sizes and inputs beyond the contract, and give no speed."""
    rejudge: bool = Field(False)
    """Judge even if the store knows the answer."""

    def run_sizes(self, device: str) -> dict[str, Constant]:
        """The overrides in force on a kind of device."""
        if self.sizes is not None:
            return dict(self.sizes)
        return dict(self.problem.cpu_constants) if device == "cpu" else {}


class Compared(Record):
    """Judgements of the same candidates, fast and in full."""

    num_compared: int = 0
    num_differing: int = 0
    """Those with another verdict in full."""

    def __add__(self, other: Compared) -> Compared:
        return Compared(
            num_compared=self.num_compared + other.num_compared,
            num_differing=self.num_differing + other.num_differing,
        )


class TakenOut(Record):
    """A place for a judge that gets no more candidates, and why."""

    place: str
    reason: str


class Gym(Protocol):
    """A pool of judges. Usable as a context manager; `close` leaves no process behind."""

    @property
    def version(self) -> str: ...

    @property
    def taken_out(self) -> tuple[TakenOut, ...]:
        """Places that failed their health checks or left since the gym was opened."""
        ...

    def judge(
        self, requests: Sequence[JudgeRequest], progress: Progress = silent
    ) -> list[Evaluation | NotJudged]:
        """Return one outcome a request, in order. Same candidate, problem, sizes and seed: judged once.

        A `NoCandidate` gives `malformed`. A problem whose reference fails on the gym's device, or on which
        judges fail that work otherwise, gives `NotJudged`, and all others are judged. Raises
        `GymUnavailable` only when the gym itself cannot work.
        """
        ...

    def close(self) -> None: ...
