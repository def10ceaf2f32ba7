"""Candidates that wait for a judge, and their leases: each gets one outcome, whatever dies."""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.records import Evaluation

Outcome = Evaluation | Exception
_HOMES = 4096
TRIES = 6
"""The retry budget: judges that may fail on one candidate, and fresh judges in a row that may fail at one
place."""
Outcomes = queue.SimpleQueue[tuple[str, Outcome]]


@dataclass(eq=False, slots=True)
class Lease:
    """One candidate to be judged, and the failures of its judges."""

    key: str
    request: JudgeRequest
    seed: int
    outcomes: Outcomes
    failures: list[Exception] = field(default_factory=list)
    """Failures of judges that the candidate may have caused."""
    failed_at: str = ""
    """The place of the last of them."""


class Leases:
    """A thread-safe queue of candidates: a place (one judge) leases one, then finishes it or gives it back.

    Nothing here limits a lease's time; its holder does, with the judge's deadline. A candidate that failed
    at a place is leased elsewhere first. Candidates of one problem go to one place as long as all have
    something to do: what a judge pays once for a problem is paid at one place then.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Lease] = deque()
        self._held: set[Lease] = set()
        self._places: set[str] = set()
        self._homes: OrderedDict[str, str] = OrderedDict()

    def open_place(self, place: str) -> None:
        """A place that will take candidates."""
        with self._changed:
            self._places.add(place)
            self._changed.notify_all()

    def close_place(self, place: str) -> None:
        """It takes none any more; those that wait there are told."""
        with self._changed:
            self._places.discard(place)
            self._changed.notify_all()

    def submit(self, leases: Sequence[Lease]) -> None:
        """Let them wait for a place."""
        with self._changed:
            self._waiting.extend(leases)
            self._changed.notify_all()

    def take(self, place: str) -> Lease | None:
        """Wait for a candidate; None when the place is closed."""
        with self._changed:
            while place in self._places:
                suiting = (lease for lease in self._waiting if self._suits(lease, place))
                lease = min(suiting, key=lambda idle: self._strangeness(idle, place), default=None)
                if lease is not None:
                    self._waiting.remove(lease)
                    self._held.add(lease)
                    self._settle(lease, place)
                    return lease
                self._changed.wait()
        return None

    def finish(self, lease: Lease, outcome: Outcome) -> None:
        """Put the outcome of a lease once: an outcome for a lost lease is ignored."""
        with self._changed:
            if lease not in self._held:
                return
            self._held.discard(lease)
        lease.outcomes.put((lease.key, outcome))

    def give_back(self, lease: Lease) -> None:
        """Return a lease to be judged next, elsewhere if it has failed and there is another place."""
        with self._changed:
            if lease in self._held:
                self._held.discard(lease)
                self._waiting.appendleft(lease)
                self._changed.notify_all()

    def withdraw(self, leases: Sequence[Lease]) -> None:
        """Drop leases without a caller that waits for them."""
        with self._changed:
            unwanted = set(leases)
            self._waiting = deque(lease for lease in self._waiting if lease not in unwanted)

    def fail_waiting(self, error: Exception) -> None:
        """Fail all waiting candidates with `error`."""
        with self._changed:
            failed, self._waiting = self._waiting, deque()
        for lease in failed:
            lease.outcomes.put((lease.key, error))

    def _strangeness(self, lease: Lease, place: str) -> int:
        """The rank of a lease's problem at a place: 0 for the place's own problem, 1 for a problem without a
        place, 2 for another place's."""
        home = self._homes.get(lease.request.problem.sha256)
        return 0 if home == place else 1 if home not in self._places else 2

    def _settle(self, lease: Lease, place: str) -> None:
        problem = lease.request.problem.sha256
        if self._homes.get(problem) not in self._places:
            self._homes[problem] = place
        self._homes.move_to_end(problem)
        while len(self._homes) > _HOMES:
            self._homes.popitem(last=False)

    def _suits(self, lease: Lease, place: str) -> bool:
        return lease.failed_at != place or not self._places - {place}
