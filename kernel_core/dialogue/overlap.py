"""Writing and judging side by side: while some conversations are judged, others write their next turn.

Conversations go in parts. A part writes as one batch and is then judged in the background; whichever part
has been judged first writes next, so that neither the policy nor the judge waits for the slowest part. To a
server all parts write at once, each in a thread. What a part writes depends on its own conversations alone,
so the result is the same, bit for bit, as one part after the other would give: only the order differs.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kernel_core.errors import DojoError, GymUnavailable
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.progress import Progress
from kernel_core.records import Evaluation, NotJudged

Part = TypeVar("Part")

_LOOK_EVERY_S = 0.2
"""Seconds between progress reports while there is nothing to write."""
_GIVE_UP_AFTER = 3
"""Requests of one problem without an answer, each asked alone: then it is the problem and not a request."""
_MOST_THREADS = 512
"""Parts that write or are judged at once: twice what a server has in work."""


@dataclass(slots=True)
class Judgement(Generic[Part]):
    """Part in the judge's queue."""

    part: Part
    requests: Sequence[JudgeRequest]
    num_done: int = 0
    num_retried: int = 0
    """Requests asked again one by one, after a fault of ours."""
    fault: DojoError | None = None
    """Error of a request without an answer."""
    begun: float = 0.0
    ended: float = 0.0
    evaluations: list[Evaluation | NotJudged | None] = field(default_factory=list)
    """One per request; None where a fault of ours left no answer."""


@dataclass(slots=True)
class _Asked:
    """Problems that got an answer to some request, and requests that got none alone; for all parts."""

    answered: set[str] = field(default_factory=set)
    unanswered: Counter[str] = field(default_factory=Counter)

    def gives_up(self, problem: str) -> bool:
        """Return True if a few requests of a problem, each asked alone, got no answer, and none ever
        got one."""
        return problem not in self.answered and self.unanswered[problem] >= _GIVE_UP_AFTER


def side_by_side(
    parts: Sequence[Part],
    write: Callable[[Part], list[JudgeRequest]],
    take: Callable[[Judgement[Part]], Part | None],
    gym: Gym,
    *,
    overlap: bool,
    together: bool,
    leave_out_faults: bool,
    progress: Progress,
    total: int,
) -> list[Judgement[Part]]:
    """Write, judge and take every part, over and over, until `take` has nothing more to write.

    `write` and `take` are called by this thread only; with `together`, `write` is called by a thread for each
    part. Without `overlap`, all parts write before any is judged. `total` is the number of requests to come,
    for progress. Gives every judgement, for its times. Raises `GymUnavailable` as the gym does; with
    `leave_out_faults` such a request has no evaluation.
    """
    ready, all_judgements, asked = deque(parts), list[Judgement[Part]](), _Asked()
    under_way: dict[Future[None], Judgement[Part]] = {}
    num_threads = min(max(1, len(parts)), _MOST_THREADS)
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="judge")

    def show(label: str) -> None:
        if any(not judgement.requests for judgement in under_way.values()):
            label = "sample"  # the judge is not waited for while some still write
        done = (
            len(judgement.requests) if label == "sample" else judgement.num_done
            for judgement in all_judgements
        )
        progress(label, sum(done), total)

    def work(judgement: Judgement[Part]) -> None:
        if together:
            judgement.requests = write(judgement.part)
        _judge(gym, judgement, asked if leave_out_faults else None)

    try:
        while ready or under_way:
            begun: list[Judgement[Part]] = []
            while ready and (together or not begun or not overlap):
                begun.append(Judgement(ready.popleft(), []))
                all_judgements.append(begun[-1])
                if not together:
                    show("sample")
                    begun[-1].requests = write(begun[-1].part)
                    show("sample")
            for judgement in begun:
                under_way[pool.submit(work, judgement)] = judgement
            for done in _finished(under_way, block=not ready, everything=not overlap, look=show):
                rest = take(done)
                if rest is not None:
                    ready.append(rest)
    except BaseException as error:
        # A stopped rollout does not wait for the judge: the caller that opened the gym closes it now.
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        raise
    pool.shutdown()
    return all_judgements


def judge_or_none(gym: Gym, requests: Sequence[JudgeRequest]) -> list[Evaluation | None]:
    """Judge each request, in order; None where the gym failed twice or its problem is none there.

    A fault of the gym is never an evaluation, and so never a reward. Raises `GymUnavailable` when every
    request failed.
    """
    judgement = Judgement(None, requests)
    _judge(gym, judgement, _Asked())
    evaluations = [outcome if isinstance(outcome, Evaluation) else None for outcome in judgement.evaluations]
    if requests and not any(evaluations):
        raise GymUnavailable(f"the gym left all of {len(requests)} candidates without an evaluation")
    return evaluations


def seconds_judging(judgements: Sequence[Judgement[Part]]) -> float:
    """Wall clock in which at least one part was with the judge."""
    total, until = 0.0, 0.0
    for judgement in sorted(judgements, key=lambda judgement: judgement.begun):
        total += max(0.0, judgement.ended - max(judgement.begun, until))
        until = max(until, judgement.ended)
    return total


def _finished(
    under_way: dict[Future[None], Judgement[Part]],
    *,
    block: bool,
    everything: bool,
    look: Callable[[str], None],
) -> Iterator[Judgement[Part]]:
    """Return the judgements finished by now; with `block` at least one, with `everything` all of them."""
    while under_way:
        finished = wait(under_way, _LOOK_EVERY_S if block else 0.0, FIRST_COMPLETED).done
        for future in sorted(finished, key=lambda future: under_way[future].ended):
            judgement = under_way.pop(future)
            future.result()
            yield judgement
        if block:
            look("judge")
        if not block or (finished and not everything):
            return


def _judge(gym: Gym, judgement: Judgement[Part], asked: _Asked | None) -> None:
    """Fill in the evaluations; with `asked` a fault of ours leaves a gap."""

    def count(label: str, done: int, total: int) -> None:
        judgement.num_done = max(judgement.num_done, done)

    judgement.begun = time.monotonic()
    try:
        judgement.evaluations = list(gym.judge(judgement.requests, count))
        if asked is not None:
            asked.answered.update(request.problem.id for request in judgement.requests)
    except GymUnavailable:
        if asked is None:
            raise
        _ask_one_by_one(gym, judgement, asked)
    judgement.num_done = len(judgement.requests)
    judgement.ended = time.monotonic()


def _ask_one_by_one(gym: Gym, judgement: Judgement[Part], asked: _Asked) -> None:
    """Ask for each request by itself, so that one impossible request does not fail the others.

    Where the first few of a problem get no answer and none gets one, the rest is skipped: each could cost the
    lives of several judges.
    """
    for request in judgement.requests:
        problem = request.problem.id
        if asked.gives_up(problem):
            judgement.evaluations.append(None)
            continue
        judgement.num_retried += 1
        try:
            judgement.evaluations += gym.judge([request])
            asked.answered.add(problem)
        except GymUnavailable as error:
            judgement.evaluations.append(None)
            judgement.fault = error
            asked.unanswered[problem] += 1
