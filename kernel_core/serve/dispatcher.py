"""Between HTTP and the judge pool: bounded admission, and one judgement for each id.

An accepted call is judged whatever becomes of its connection. The client that lost the connection asks again
with the same id, and gets the answer of the first call. So no call is lost and none is judged twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kernel_core.errors import DojoError, GymUnavailable, OurFault
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.records import Evaluation
from kernel_core.serve.metrics import Metrics
from kernel_core.store import digest_of

_ANSWERS_KEPT = 20_000
"""Answers that a repeated call can still get; the oldest go first."""


class Busy(DojoError):
    """No room for another call now; the client retries later."""

    def __init__(self, message: str, *, own_share: bool) -> None:
        super().__init__(message)
        self.own_share = own_share
        """True if the client's own calls fill its share of the room."""


class Conflict(DojoError):
    """Id already used for another call."""


@dataclass(frozen=True, slots=True)
class _Job:
    digest: str
    answer: asyncio.Future[Evaluation]


class Dispatcher:
    """Hands calls to a pool, at most `capacity` at once and `share` of one client.

    Its methods run on one event loop. Each accepted call holds a thread, which waits for the pool: then the
    pool sees all that waits, and can send candidates of one problem to one judge.
    """

    def __init__(self, gym: PooledGym, capacity: int, share: int) -> None:
        self.gym = gym
        self.capacity = capacity
        self.metrics = Metrics()
        self._share = share
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix="call")
        self._jobs: OrderedDict[tuple[str, str], _Job] = OrderedDict()
        self._in_work: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_in_work(self) -> int:
        """Calls without an answer yet."""
        return self._in_work.total()

    async def judge(self, client: str, id: str, request: JudgeRequest) -> Evaluation:
        """Judge a call, once for each client and id.

        Raises `Busy` without room, `Conflict` for a used id, and what the pool raises. A fault of ours is
        forgotten, so that the same id can be tried again.
        """
        digest = digest_of(request.model_dump(mode="json"))
        job = self._jobs.get((client, id))
        if job is None:
            self._admit(client)
            job = _Job(digest, asyncio.get_running_loop().create_future())
            self._jobs[client, id] = job
            task = asyncio.ensure_future(self._run(client, id, request, job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif job.digest != digest:
            raise Conflict(f"id {id} was used for another call; make a new id for each call")
        else:
            self.metrics.rejoined.inc()
        return await asyncio.shield(job.answer)

    async def drain(self) -> None:
        """Wait for the calls in work."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)

    def _admit(self, client: str) -> None:
        if self._in_work[client] >= self._share:
            raise Busy(f"{self._share} calls of {client} are in work; wait for one of them", own_share=True)
        if self.num_in_work >= self.capacity:
            raise Busy(f"{self.capacity} calls are in work; ask again later", own_share=False)
        self._in_work[client] += 1
        self.metrics.in_work.set(self.num_in_work)

    async def _run(self, client: str, id: str, request: JudgeRequest, job: _Job) -> None:
        begun = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            [outcome] = await loop.run_in_executor(self._threads, self.gym.judge_each, [request])
        except Exception as error:
            outcome = error if isinstance(error, DojoError) else GymUnavailable(f"{error!r}")
        self._in_work[client] -= 1
        self.metrics.in_work.set(self.num_in_work)
        if isinstance(outcome, Evaluation):
            self.metrics.seconds.observe(time.monotonic() - begun)
            self.metrics.judged.labels(verdict=str(outcome.verdict)).inc()
            job.answer.set_result(outcome)
        else:
            job.answer.set_exception(outcome)
            job.answer.exception()  # retrieved: the client may have left
            if isinstance(outcome, OurFault):
                del self._jobs[client, id]
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        while len(self._jobs) > _ANSWERS_KEPT:
            oldest = next(key for key, job in self._jobs.items() if job.answer.done())
            del self._jobs[oldest]
