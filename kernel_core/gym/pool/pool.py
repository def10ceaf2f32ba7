"""Many judges behind one call: requests spread over them, each distinct one judged once, results in order."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol

from kernel_core.config import GymConfig
from kernel_core.errors import DojoError, GymUnavailable, NotAProblem
from kernel_core.gym.contract.requests import JudgeRequest, TakenOut
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.pool.judge_host import Host, JudgeLost
from kernel_core.gym.pool.judge_slot import JudgeSlot, SlotClosed
from kernel_core.gym.pool.leases import TRIES, Lease, Leases, Outcome
from kernel_core.gym.pool.verdict_cache import Cache, request_key
from kernel_core.progress import Progress, silent
from kernel_core.records import Evaluation, NotJudged

_log = logging.getLogger(__name__)


class Closeable(Protocol):
    """An owner of processes."""

    def close(self) -> None:
        """End them."""
        ...


class PooledGym:
    """A `Gym` of places that come and go, each with a judge process of its own."""

    def __init__(self, config: GymConfig, cache: Cache) -> None:
        self._config = config
        self._cache = cache
        self._leases = Leases()
        self._lock = threading.Lock()
        self._places: list[JudgeSlot] = []
        self._announced: set[Host] = set()
        self._taken_out: list[TakenOut] = []
        self._owned: Closeable | None = None
        self._closed = False

    @property
    def version(self) -> str:
        """`GYM_VERSION` of the judges."""
        return GYM_VERSION

    @property
    def config(self) -> GymConfig:
        """The judges' settings."""
        return self._config

    @property
    def taken_out(self) -> tuple[TakenOut, ...]:
        """See `requests.Gym`."""
        return tuple(self._taken_out)

    @property
    def places(self) -> tuple[str, ...]:
        """The names of the places in service."""
        return tuple(place.name for place in self._places)

    def __enter__(self) -> PooledGym:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def judge(
        self, requests: Sequence[JudgeRequest], progress: Progress = silent
    ) -> list[Evaluation | NotJudged]:
        """Return one outcome a request, in order; see `requests.Gym`."""
        outcomes: list[Evaluation | NotJudged] = []
        judged = self._outcomes(requests, progress, collected=NotAProblem)
        for request, outcome in zip(requests, judged, strict=True):
            if isinstance(outcome, Evaluation):
                outcomes.append(outcome)
            else:
                outcomes.append(NotJudged(problem_id=request.problem.id, reason=str(outcome)))
        return outcomes

    def judge_each(
        self, requests: Sequence[JudgeRequest], progress: Progress = silent
    ) -> list[Evaluation | DojoError]:
        """Return one outcome a request, in order, with the error in place of an evaluation that failed."""
        return self._outcomes(requests, progress, collected=DojoError)

    def _outcomes(
        self, requests: Sequence[JudgeRequest], progress: Progress, *, collected: type[DojoError]
    ) -> list[Evaluation | DojoError]:
        """Errors of the kind `collected` stand in place of an evaluation; any other is raised."""
        if self._closed:
            raise GymUnavailable("this gym was closed; open another")
        keys = [request_key(request, self._config) for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        known: dict[str, Evaluation | DojoError] = {}
        for key, request in distinct.items():
            cached = None if request.rejudge else self._cache.get(key)
            if cached is not None:
                known[key] = cached
        todo = [(key, request) for key, request in distinct.items() if key not in known]
        counts = {key: keys.count(key) for key in distinct} if len(distinct) < len(keys) else {}
        done = sum(counts.get(key, 1) for key in known)
        progress("judge", done, len(requests))
        for key, outcome in self._judge_distinct(todo, collected):
            known[key] = outcome
            done += counts.get(key, 1)
            progress("judge", done, len(requests))
        return [
            outcome.model_copy(update={"problem_id": request.problem.id})
            if isinstance(outcome := known[key], Evaluation)
            else outcome
            for key, request in zip(keys, requests, strict=True)
        ]

    def close(self) -> None:
        """End every process and remove every temporary file."""
        with self._lock:
            self._closed = True
            places, self._places = self._places, []
        for place in places:
            place.close("the gym was closed")
            self._leases.close_place(place.name)
        if self._owned is not None:
            self._owned.close()
        self._fail_if_none_is_left()

    # Places that come and go ----------------------------------------------------------------------

    def own(self, host: Closeable) -> None:
        """Close this host at the end."""
        self._owned = host

    def announce(self, host: Host) -> None:
        """The places of this host are starting. Requests wait until they arrive or are refused."""
        with self._lock:
            self._announced.add(host)

    def arrive(self, host: Host, places: Sequence[JudgeSlot]) -> None:
        """Places of a host are ready for candidates."""
        seats = self._config.in_flight if self._config.device == "cuda" else 1
        with self._lock:
            self._announced.discard(host)
            if self._closed:
                return
            self._places += places
        for place in places:
            self._leases.open_place(place.name)
            for _ in range(seats):
                threading.Thread(target=self._serve, args=(place,), daemon=True).start()

    def refuse(self, host: Host, name: str, reason: str) -> None:
        """The host has no place that can judge."""
        with self._lock:
            self._announced.discard(host)
        if not self._closed:
            self._note_taken_out(name, reason)
        self._fail_if_none_is_left()

    def lose(self, host: Host, reason: str) -> None:
        """The host is gone, with all its places."""
        for place in [place for place in self._places if place.host is host]:
            place.close(reason)
            self.retire(place)

    def retire(self, place: JudgeSlot) -> None:
        """Give a closed place no more work. If it was the last, all waiting requests fail."""
        with self._lock:
            in_service = place in self._places
            if in_service:
                self._places.remove(place)
            is_last_of_host = not any(other.host is place.host for other in self._places)
        if in_service:
            self._note_taken_out(place.name, place.fault)
            self._leases.close_place(place.name)
            if is_last_of_host:
                place.host.close()
        self._fail_if_none_is_left()

    def _note_taken_out(self, name: str, reason: str) -> None:
        self._taken_out.append(TakenOut(place=name, reason=reason))
        _log.warning("%s is taken out: %s; %d places are left", name, reason, len(self._places))

    def _fail_if_none_is_left(self) -> None:
        with self._lock:
            if self._places or self._announced:
                return
        self._leases.fail_waiting(self.none_left())

    def none_left(self) -> GymUnavailable:
        """The error for requests when no judge is left."""
        if self._closed and not self._taken_out:
            return GymUnavailable("this gym was closed; open another")
        reasons = "; ".join(f"{loss.place}: {loss.reason}" for loss in self._taken_out)
        return GymUnavailable(f"no judge is left ({reasons or 'no node has what a judge needs'})")

    # Work -----------------------------------------------------------------------------------------

    def _judge_distinct(
        self, todo: list[tuple[str, JudgeRequest]], collected: type[DojoError]
    ) -> Iterator[tuple[str, Evaluation | DojoError]]:
        """Yield outcomes as they come; raise the first failure of another kind than `collected`."""
        outcomes: queue.SimpleQueue[tuple[str, Outcome]] = queue.SimpleQueue()
        leases = [Lease(key, request, _seed_of(request), outcomes) for key, request in todo]
        self._leases.submit(leases)
        self._fail_if_none_is_left()
        try:
            for _ in leases:
                key, outcome = outcomes.get()
                if isinstance(outcome, Evaluation):
                    self._cache.put(key, outcome)
                elif not isinstance(outcome, collected):
                    raise outcome
                yield key, outcome
        finally:
            self._leases.withdraw(leases)

    def _serve(self, place: JudgeSlot) -> None:
        """Serve one seat until its place is closed."""
        while (lease := self._leases.take(place.name)) is not None:
            outcome = self._judge(place, lease)
            if outcome is not None:
                self._leases.finish(lease, outcome)
            else:
                self._leases.give_back(lease)
            if place.fault:
                self.retire(place)

    def _judge(self, place: JudgeSlot, lease: Lease) -> Outcome | None:
        """The outcome of a lease; None when it has to be judged again. After half of the tries the candidate
        has a judge to itself, because a judge of a GPU has many at once. After all of them a judge is told
        so, and gives a verdict."""
        failed = len(lease.failures)
        blamed = f"{failed} judges died on it" if failed >= TRIES else ""
        try:
            return place.judge(lease.request, lease.seed, alone=2 * failed >= TRIES, blamed=blamed)
        except SlotClosed:
            return None
        except (JudgeLost, GymUnavailable) as error:
            if place.fault:
                return None
            lease.failures.append(error)
            lease.failed_at = place.name
            if len(lease.failures) < TRIES:
                return None
            if isinstance(error, GymUnavailable):
                # Each of these judges worked afterwards: the others need not wait for this problem.
                return NotAProblem(f"{TRIES} judges that work gave no verdict: {error}")
            return _problem_kills(lease) if blamed else None
        except Exception as error:
            return error


def _problem_kills(lease: Lease) -> NotAProblem:
    """The judge that was asked for a verdict died of a candidate that does nothing."""
    return NotAProblem(
        f"{lease.request.problem.id}: {len(lease.failures)} judges died on it, the last on a candidate that "
        f"does nothing ({lease.failures[-1]}); look for memory pressure, then run the same command again"
    )


def _seed_of(request: JudgeRequest) -> int:
    return request.seed if request.seed is not None else secrets.randbits(62)
