"""Locks of a GPU: many users together for correctness, one alone for timing, and never more than fit in
memory."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Drawn = Callable[[], None]
"""Ends the drawing of inputs before the end of the turn."""


def nothing_drawn() -> None:
    """No thread waits to draw."""


_PATIENCE_S, _TOGETHER = 2.0, 6
"""New shared turns begin until an exclusive request has waited so long or so many wait. The device is emptied
for all of them at once; each time it idles until the longest shared turn is over."""


class GpuLock:
    """A lock that is shared or exclusive; exclusive requests go before new shared ones, after a while.

    One holder at a time draws inputs, because the random state of a process is global. A thread that waits to
    draw holds no turn yet, so it does not block an exclusive request.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._wanting_alone = 0
        self._wanted_since = 0.0
        self._is_pressing = False
        self._is_alone = False
        self._is_drawing = False

    @contextlib.contextmanager
    def share(self) -> Iterator[None]:
        """Wait until no thread has the exclusive turn, or has wanted it for long."""
        with self._changed:
            self._changed.wait_for(self._is_open)
            self._sharing += 1
        try:
            yield
        finally:
            self._end_sharing()

    @contextlib.contextmanager
    def draw(self) -> Iterator[Drawn]:
        """Share as the drawing thread, for the whole turn or until the drawing is ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_open() and not self._is_drawing)
            self._sharing += 1
            self._is_drawing = True
        with contextlib.ExitStack() as turn, contextlib.ExitStack() as drawing:
            turn.callback(self._end_sharing)
            drawing.callback(self._end_drawing)
            yield drawing.close  # twice is as good as once

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no thread has a turn."""
        with self._changed:
            if not self._wanting_alone:
                self._wanted_since = time.monotonic()
            self._wanting_alone += 1
            self._changed.wait_for(lambda: not self._is_alone and not self._sharing)
            self._wanting_alone -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()

    def _end_sharing(self) -> None:
        with self._changed:
            self._sharing -= 1
            self._changed.notify_all()

    def _end_drawing(self) -> None:
        with self._changed:
            self._is_drawing = False
            self._changed.notify_all()

    def _is_open(self) -> bool:
        waited_s = time.monotonic() - self._wanted_since
        is_urgent = self._is_pressing or waited_s >= _PATIENCE_S or self._wanting_alone >= _TOGETHER
        self._is_pressing = self._wanting_alone > 0 and is_urgent
        return not self._is_alone and not self._is_pressing


_OVERTAKEN = 8
"""The number of smaller requests that overtake a waiting one before it goes first."""


@dataclass(slots=True, eq=False)
class _Waiter:
    num_bytes: int
    overtaken: int = 0


class Room:
    """Memory that is promised before it is taken."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._changed = threading.Condition()
        self._taken = 0
        self._queue: list[_Waiter] = []
        self._mine = threading.local()

    @contextlib.contextmanager
    def take(self, num_bytes: int) -> Iterator[None]:
        """Wait until so much is free. A request larger than the whole room enters when it is the only one.

        A small request overtakes larger ones a few times. Then the larger ones go first, so that they never
        starve. A thread that has room takes no second one.
        """
        if getattr(self._mine, "has_room", False):
            yield
            return
        num_bytes = min(num_bytes, self.num_bytes)
        me = _Waiter(num_bytes)
        with self._changed:
            self._queue.append(me)
            self._changed.wait_for(lambda: self._may_enter(me))
            for passed in self._ahead_of(me):
                passed.overtaken += 1
            self._queue.remove(me)
            self._taken += num_bytes
            self._changed.notify_all()
        self._mine.has_room, self._mine.num_bytes = True, num_bytes
        try:
            yield
        finally:
            self._mine.has_room, self._mine.num_bytes = False, 0
            with self._changed:
                self._taken -= num_bytes
                self._changed.notify_all()

    def _may_enter(self, waiter: _Waiter) -> bool:
        fits = self._taken + waiter.num_bytes <= self.num_bytes
        return fits and all(other.overtaken < _OVERTAKEN for other in self._ahead_of(waiter))

    def _ahead_of(self, waiter: _Waiter) -> list[_Waiter]:
        return list(itertools.takewhile(lambda other: other is not waiter, self._queue))

    def below_all(self, num_bytes: int) -> int:
        """At most this much; the whole room is for threads that run alone."""
        return min(num_bytes, self.num_bytes - 1)

    @property
    def free_bytes(self) -> int:
        """Bytes that are not promised."""
        with self._changed:
            return self.num_bytes - self._taken

    def is_all_mine(self) -> bool:
        """Return True if this thread has taken everything."""
        return getattr(self._mine, "num_bytes", 0) == self.num_bytes
