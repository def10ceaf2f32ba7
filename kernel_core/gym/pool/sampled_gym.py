"""Fast judging for training: answers are judged fast where nothing needs their speed, and a share in full.

A fast judgement runs the same trials, the replay, and all else that finds a cheat. It leaves out larger sizes
and inputs beyond the contract, and gives no speed. The share is chosen by problem, candidate and seed. Each
of its candidates is judged both ways: the full verdict counts, and a difference is counted and logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.contract.requests import Compared, Gym, JudgeRequest, TakenOut
from kernel_core.progress import Progress, silent
from kernel_core.records import Candidate, Evaluation, NotJudged

log = logging.getLogger(__name__)


class SampledGym:
    """A `Gym` in front of another one. Requests with `timing` are judged in full. Threads may ask at once."""

    def __init__(self, gym: Gym, share_in_full: float) -> None:
        self._gym = gym
        self._share = share_in_full
        self._lock = threading.Lock()
        self._compared = Compared()

    @property
    def version(self) -> str:
        """See `Gym`."""
        return self._gym.version

    @property
    def taken_out(self) -> tuple[TakenOut, ...]:
        """See `Gym`."""
        return self._gym.taken_out

    def judge(
        self, requests: Sequence[JudgeRequest], progress: Progress = silent
    ) -> list[Evaluation | NotJudged]:
        """See `Gym`."""
        in_full = [request.timing or self._is_of_share(request) for request in requests]
        asked = [
            request if full else request.model_copy(update={"fast": True})
            for request, full in zip(requests, in_full, strict=True)
        ]
        again = [number for number, request in enumerate(asked) if not (request.timing or request.fast)]
        also = [asked[number].model_copy(update={"fast": True}) for number in again]
        evaluations = self._gym.judge([*asked, *also], progress)
        pairs = zip((evaluations[number] for number in again), evaluations[len(asked) :], strict=True)
        self._count(
            [
                (full, fast)
                for full, fast in pairs
                if isinstance(full, Evaluation) and isinstance(fast, Evaluation)
            ]
        )
        return evaluations[: len(asked)]

    def close(self) -> None:
        """The other gym is closed by its owner."""

    def take_compared(self) -> Compared:
        """Return the comparisons since the last call."""
        with self._lock:
            taken, self._compared = self._compared, Compared()
        return taken

    def _is_of_share(self, request: JudgeRequest) -> bool:
        """Return True if the request is judged in full; one without a candidate costs nothing."""
        if not isinstance(request.candidate, Candidate):
            return False
        drawn = derive_seed(request.seed or 0, request.problem.sha256, request.candidate.sha256)
        return drawn % 10_000 < 10_000 * self._share

    def _count(self, pairs: list[tuple[Evaluation, Evaluation]]) -> None:
        differing = [(full, fast) for full, fast in pairs if full.verdict is not fast.verdict]
        for full, fast in differing:
            log.warning(
                "%s: %s in full (%s), %s by the fast judgement (%s)",
                full.problem_id,
                full.verdict,
                full.feedback,
                fast.verdict,
                fast.feedback,
            )
        with self._lock:
            self._compared += Compared(num_compared=len(pairs), num_differing=len(differing))
