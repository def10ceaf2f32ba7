"""One judge and its seats. It is probed when in doubt, replaced when it dies, and closed when sick.

A judge that dies may be sick or may have met a candidate that kills judges. A kernel with a known verdict
tells them apart. If the place judges it rightly, the place stays, and the death counts against the candidate.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from kernel_core import errors
from kernel_core.config import GymConfig
from kernel_core.errors import DojoError, GymUnavailable
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.health_probe import known_request
from kernel_core.gym.pool.judge_host import Host, HostLost, JudgeLost, Line
from kernel_core.gym.pool.leases import TRIES
from kernel_core.gym.sandbox.limits import MOST_FORGIVEN
from kernel_core.gym.workers.gpu_locks import GpuLock
from kernel_core.records import Evaluation

_log = logging.getLogger(__name__)
_PATIENCE_S = 300.0
"""Time beyond a candidate's own deadlines before a judge counts as hung, and after which no further judge is
tried."""
_CHILDREN = 4
"""The number of children of a candidate: each has a deadline of its own."""
_PROBE_EVERY_S = 600.0
_PROBE_SEED = 1
_MOST_DEATHS = 2 * TRIES
"""Judges in a row that died on candidates although the probe passed: the place is closed nevertheless. A
candidate that kills judges is found before."""


class SlotClosed(Exception):
    """The place takes no candidate any more."""


@dataclass(frozen=True, slots=True)
class _Seat:
    line: Line
    life: int
    """The number of the judge's life at the other end."""


class JudgeSlot:
    """Threads of the pool may share it, each in a seat of its own.

    `trusted` says that the first probe may wait: a processor that runs this program does not miscalculate
    where a GPU or a foreign node may.
    """

    def __init__(self, host: Host, index: int, name: str, config: GymConfig, *, trusted: bool) -> None:
        self.host = host
        self.name = name
        self.fault = ""
        """The reason for its closing."""
        self._index = index
        self._most_s = _CHILDREN * (1 + MOST_FORGIVEN) * config.deadline_s
        self._lock = threading.Lock()
        self._turns = GpuLock()
        self._free: list[_Seat] = []
        self._life = 0
        self._deaths = 0
        self._probe_due = time.monotonic() + (_PROBE_EVERY_S if trusted else 0.0)

    def judge(self, request: JudgeRequest, seed: int, *, alone: bool = False, blamed: str = "") -> Evaluation:
        """Ask the judge; with `alone`, while it has no other candidate. `blamed` tells it of the judges that
        died on the candidate.

        Raises `JudgeLost` when it died and `GymUnavailable` when it could not work. The candidate may be the
        cause of either if the place has a working judge afterwards. It is not the cause if the place has a
        `fault`. Raises `SlotClosed` when no judge was asked.
        """
        with self._turns.alone() if alone else self._turns.share():
            life = self._life
            try:
                seat = self._sit_down()
                life = seat.life
                evaluation = self._ask(seat, request, seed, blamed)
            except (JudgeLost, GymUnavailable) as error:
                self._mend(life, error)
                raise
            self._deaths = 0
            return evaluation

    def close(self, reason: str) -> None:
        """Take no candidate any more."""
        self.fault = self.fault or reason

    def _sit_down(self) -> _Seat:
        with self._lock:
            if not self.fault and time.monotonic() >= self._probe_due:
                self._restore(None)
            if self.fault:
                raise SlotClosed(self.fault)
            return self._seat()

    def _seat(self) -> _Seat:
        while self._free:
            seat = self._free.pop()
            if seat.life == self._life:
                return seat
            seat.line.hang_up()
        return _Seat(self.host.connect(self._index), self._life)

    def _ask(self, seat: _Seat, request: JudgeRequest, seed: int, blamed: str = "") -> Evaluation:
        """The seat is free again afterwards, unless the judge is lost."""
        header = {"request": request.model_dump(mode="json"), "seed": seed, "blamed": blamed}
        try:
            answer = seat.line.ask(header, _PATIENCE_S + self._most_s)
        except JudgeLost:
            seat.line.hang_up()
            raise
        self._free.append(seat)
        return _read_answer(answer)

    # Health ---------------------------------------------------------------------------------------

    def _mend(self, life: int, error: Exception) -> None:
        """Have a judge that works, whether it is the old one or a new one, or close the place."""
        with self._lock:
            if life != self._life or self.fault:
                return
            self._deaths += isinstance(error, JudgeLost)
            self._restore(error)
            if self._deaths >= _MOST_DEATHS and not self.fault:
                self.fault = f"{_MOST_DEATHS} judges in a row died on candidates (the last: {error})"

    def _restore(self, error: Exception | None) -> None:
        """Probe the current judge if it lives, then fresh ones, until one is well."""
        give_up = time.monotonic() + _PATIENCE_S
        renewed = 0
        fault = str(error) if isinstance(error, JudgeLost) else self._probe()
        while fault and not self.fault:
            if renewed == TRIES or time.monotonic() > give_up:
                self.fault = f"{renewed} fresh judges failed the probe (the last: {fault})"
                return
            _log.info("%s: a fresh judge after: %s", self.name, fault)
            time.sleep(renewed)  # a full disk or a full memory may pass
            self._renew()
            renewed += 1
            fault = self._probe()
        self._probe_due = time.monotonic() + _PROBE_EVERY_S

    def _renew(self) -> None:
        for seat in self._free:
            seat.line.hang_up()
        self._free.clear()
        self.host.end_judge(self._index)
        self._life += 1

    def _probe(self) -> str:
        """The fault of the judge; empty if it is well."""
        try:
            evaluation = self._ask(self._seat(), known_request(), _PROBE_SEED)
        except HostLost as error:
            self.fault = str(error)
            return self.fault
        except (JudgeLost, GymUnavailable) as error:
            return str(error)
        return "" if evaluation.correct else f"a kernel known to be correct: {evaluation.feedback}"


def _read_answer(header: dict[str, Any]) -> Evaluation:
    if "error" in header:
        kind = getattr(errors, str(header["error"]), GymUnavailable)
        raise (kind if issubclass(kind, DojoError) else GymUnavailable)(header["message"])
    return Evaluation.model_validate(header["evaluation"])
