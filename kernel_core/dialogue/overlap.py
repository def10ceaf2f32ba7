"""Writing and judging side by side: while some conversations are judged, others write their next turn.

Conversations go in parts. A part writes as one batch and is then judged in the background; whichever part
has been judged first writes next, so that neither the policy nor the judge waits for the slowest part. What a
part writes depends on its own conversations alone, so the result is the same, bit for bit, as one part after
the other would give: only the order in time differs.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.progress import Progress
from kernel_core.records import Evaluation

Part = TypeVar("Part")

_LOOK_EVERY_S = 0.2
"""How often progress is shown while there is nothing to write."""
_GIVE_UP_AFTER = 3
"""Requests of one problem without an answer, each asked alone: then it is the problem and not a request."""


@dataclass(slots=True)
class Judgement(Generic[Part]):
    """A part on its way through the judge."""

    part: Part
    requests: Sequence[JudgeRequest]
    num_done: int = 0
    num_retried: int = 0
    """Requests asked again one by one, after a fault of ours."""
    fault: GymUnavailable | None = None
    """Why some request has no answer."""
    begun: float = 0.0
    ended: float = 0.0
    evaluations: list[Evaluation | None] = field(default_factory=list)
    """One a request; None where a fault of ours left no answer."""


def side_by_side(
    parts: Sequence[Part],
    write: Callable[[Part], list[JudgeRequest]],
    take: Callable[[Judgement[Part]], Part | None],
    gym: Gym,
    *,
    overlap: bool,
    leave_out_faults: bool,
    progress: Progress,
    total: int,
) -> list[Judgement[Part]]:
    """Every part is written, judged and taken, over and over until `take` gives nothing more to write.

    `write` and `take` are called by this thread only. Without `overlap`, all parts write before any is
    judged. `total` is the number of requests to come, for progress. Gives every judgement, for its times.
    Raises `GymUnavailable` as the gym does; with `leave_out_faults` such a request has no evaluation.
    """
    ready, all_judgements = deque(parts), list[Judgement[Part]]()
    under_way: dict[Future[None], Judgement[Part]] = {}
    num_written = 0
    pool = ThreadPoolExecutor(max_workers=max(1, len(parts)), thread_name_prefix="judge")

    def show(label: str) -> None:
        judged = sum(one.num_done for one in all_judgements)
        progress(label, num_written if label == "sample" else judged, total)

    try:
        while ready or under_way:
            written: list[Judgement[Part]] = []
            while ready and (not written or not overlap):
                show("sample")
                part = ready.popleft()
                written.append(Judgement(part, write(part)))
                num_written += len(written[-1].requests)
                show("sample")
            for judgement in written:
                all_judgements.append(judgement)
                under_way[pool.submit(_judge, gym, judgement, leave_out_faults)] = judgement
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


def seconds_judging(judgements: Sequence[Judgement[Part]]) -> float:
    """Wall clock in which at least one part was with the judge."""
    total, until = 0.0, 0.0
    for one in sorted(judgements, key=lambda one: one.begun):
        total += max(0.0, one.ended - max(one.begun, until))
        until = max(until, one.ended)
    return total


def _finished(
    under_way: dict[Future[None], Judgement[Part]],
    *,
    block: bool,
    everything: bool,
    look: Callable[[str], None],
) -> Iterator[Judgement[Part]]:
    """What has been judged by now; with `block` at least one, with `everything` all of it."""
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


def _judge(gym: Gym, judgement: Judgement[Part], leave_out_faults: bool) -> None:
    def count(label: str, done: int, total: int) -> None:
        judgement.num_done = max(judgement.num_done, done)

    judgement.begun = time.monotonic()
    try:
        judgement.evaluations = list(gym.judge(judgement.requests, count))
    except GymUnavailable:
        if not leave_out_faults:
            raise
        _ask_one_by_one(gym, judgement)
    judgement.num_done = len(judgement.requests)
    judgement.ended = time.monotonic()


def _ask_one_by_one(gym: Gym, judgement: Judgement[Part]) -> None:
    """Each request by itself, so that one which the gym cannot work on does not take the others along.

    Where the first few of a problem get no answer and none gets one, the rest of it is not asked about: each
    of them could cost the lives of several judges.
    """
    unanswered: Counter[str] = Counter()
    answered: set[str] = set()
    for request in judgement.requests:
        problem = request.problem.id
        if problem not in answered and unanswered[problem] >= _GIVE_UP_AFTER:
            judgement.evaluations.append(None)
            continue
        judgement.num_retried += 1
        try:
            judgement.evaluations += gym.judge([request])
            answered.add(problem)
        except GymUnavailable as error:
            judgement.evaluations.append(None)
            judgement.fault = error
            unanswered[problem] += 1
