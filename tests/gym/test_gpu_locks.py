"""Turns on a GPU, and room in its memory: the order of their requests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.gym.workers import gpu_locks
from kernel_core.gym.workers.gpu_locks import GpuLock, Room

WAIT_S = 10.0


class _Holder:
    """A thread that holds something until told to let go."""

    def __init__(self, take: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
        self._let_go = threading.Event()
        self._runs = threading.Event()
        self.has_it = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(take,), daemon=True)
        self._thread.start()
        assert self._runs.wait(WAIT_S)

    def _hold(self, take: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
        self._runs.set()
        with take():
            self.has_it.set()
            self._let_go.wait(WAIT_S)

    def wait(self) -> None:
        """Until it holds it."""
        assert self.has_it.wait(WAIT_S)

    def end(self) -> None:
        """Let go, and wait until that is done."""
        self._let_go.set()
        self._thread.join(WAIT_S)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exclusive requests go before new shared ones at once."""
    monkeypatch.setattr(gpu_locks, "_PATIENCE_S", 0.0)


@pytest.mark.usefixtures("impatient")
def test_many_share_and_an_exclusive_turn_is_exclusive() -> None:
    turns = GpuLock()
    sharing = [_Holder(turns.share) for _ in range(3)]
    for one in sharing:
        one.wait()
    alone = _Holder(turns.alone)
    assert not alone.has_it.wait(0.1)
    for one in sharing:
        one.end()
    alone.wait()
    late = _Holder(turns.share)
    assert not late.has_it.wait(0.1)
    alone.end()
    late.wait()
    late.end()


@pytest.mark.usefixtures("impatient")
def test_exclusive_requests_go_before_newcomers() -> None:
    turns = GpuLock()
    first = _Holder(turns.share)
    first.wait()
    alone = _Holder(turns.alone)
    time.sleep(0.05)
    newcomer = _Holder(turns.share)
    assert not newcomer.has_it.wait(0.1)
    first.end()
    alone.wait()
    assert not newcomer.has_it.is_set()
    alone.end()
    newcomer.wait()
    newcomer.end()


def test_newcomers_share_until_an_exclusive_request_has_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_locks, "_PATIENCE_S", 0.5)
    turns = GpuLock()
    first = _Holder(turns.share)
    first.wait()
    alone = _Holder(turns.alone)
    time.sleep(0.05)
    early = _Holder(turns.share)
    early.wait()
    time.sleep(0.6)
    late = _Holder(turns.draw)
    assert not late.has_it.wait(0.1)
    first.end()
    assert not alone.has_it.wait(0.1)
    early.end()
    alone.wait()
    assert not late.has_it.is_set()
    alone.end()
    late.wait()
    late.end()


def test_many_exclusive_requests_go_before_newcomers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_locks, "_PATIENCE_S", WAIT_S)
    monkeypatch.setattr(gpu_locks, "_TOGETHER", 2)
    turns = GpuLock()
    first = _Holder(turns.share)
    first.wait()
    both = [_Holder(turns.alone) for _ in range(2)]
    time.sleep(0.05)
    newcomer = _Holder(turns.share)
    assert not newcomer.has_it.wait(0.1)
    first.end()
    for _ in both:
        one = next(one for one in both if one.has_it.wait(0.5))
        assert not newcomer.has_it.is_set()
        one.end()
        both = [other for other in both if other is not one]
    newcomer.wait()
    newcomer.end()


def test_an_exclusive_turn_meets_no_other_however_many_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_locks, "_PATIENCE_S", 0.002)
    turns, guard = GpuLock(), threading.Lock()
    state = {"sharing": 0, "drawing": 0, "alone": 0, "clashes": 0}

    def visit(number: int) -> None:
        kind = ("alone", "drawing", "drawing", "sharing", "sharing")[number % 5]
        kinds = {"alone": turns.alone, "drawing": turns.draw, "sharing": turns.share}
        with kinds[kind]():
            with guard:
                state[kind] += 1
                company = state["alone"] + state["sharing"] + state["drawing"]
                state["clashes"] += int(state["drawing"] > 1 or (state["alone"] > 0 and company > 1))
            time.sleep(0.0005)
            with guard:
                state[kind] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(visit, range(400)))
    assert state == {"sharing": 0, "drawing": 0, "alone": 0, "clashes": 0}


@pytest.mark.usefixtures("impatient")
def test_a_request_to_draw_does_not_delay_an_exclusive_one() -> None:
    turns = GpuLock()
    first = _Holder(turns.draw)
    first.wait()
    second = _Holder(turns.draw)
    assert not second.has_it.wait(0.1)
    alone = _Holder(turns.alone)
    time.sleep(0.05)
    first.end()
    alone.wait()
    assert not second.has_it.is_set()
    alone.end()
    second.wait()
    second.end()


def test_who_has_drawn_and_leaves_does_not_end_the_drawing_of_the_next() -> None:
    turns = GpuLock()
    with turns.draw() as drawn:
        drawn()
        second = _Holder(turns.draw)
        second.wait()
    third = _Holder(turns.draw)
    assert not third.has_it.wait(0.1)
    second.end()
    third.wait()
    third.end()


def test_who_has_drawn_lets_others_draw_and_still_shares() -> None:
    turns = GpuLock()
    with turns.draw() as drawn:
        waiting = _Holder(turns.draw)
        assert not waiting.has_it.wait(0.1)
        drawn()
        waiting.wait()
        waiting.end()
        alone = _Holder(turns.alone)
        assert not alone.has_it.wait(0.1)
    alone.wait()
    alone.end()


@pytest.mark.parametrize(("wanted", "fits"), [(4, True), (5, False)])
def test_room_is_promised_before_it_is_taken(wanted: int, fits: bool) -> None:
    room = Room(10)
    first = _Holder(lambda: room.take(6))
    first.wait()
    second = _Holder(lambda: room.take(wanted))
    assert second.has_it.wait(0.1 if not fits else WAIT_S) == fits
    first.end()
    second.wait()
    second.end()


def test_who_needs_little_passes_who_waits_for_much() -> None:
    room = Room(10)
    first = _Holder(lambda: room.take(6))
    first.wait()
    large = _Holder(lambda: room.take(10))
    time.sleep(0.05)
    small = _Holder(lambda: room.take(1))
    small.wait()
    first.end()
    assert not large.has_it.wait(0.1)
    small.end()
    large.wait()
    large.end()


def test_who_needs_much_room_is_not_passed_for_ever() -> None:
    """Somebody always has some room, and yet the one who wants all of it gets it."""
    room, over = Room(10), threading.Event()

    def come_again_and_again() -> None:
        while not over.is_set():
            with room.take(1):
                time.sleep(0.003)

    crowd = [threading.Thread(target=come_again_and_again, daemon=True) for _ in range(6)]
    for one in crowd:
        one.start()
    large = _Holder(lambda: room.take(10))
    large.wait()
    large.end()
    over.set()
    for one in crowd:
        one.join(WAIT_S)
    with room.take(10):
        assert room.is_all_mine()


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30))
@settings(max_examples=20, deadline=None)
def test_no_more_room_is_promised_than_there_is_and_everybody_gets_some(wanted: list[int]) -> None:
    room, guard = Room(10), threading.Lock()
    taken, most = [0], [0]

    def visit(num_bytes: int) -> None:
        with room.take(num_bytes):
            with guard:
                taken[0] += min(num_bytes, 10)
                most[0] = max(most[0], taken[0])
            time.sleep(0.0003)
            with guard:
                taken[0] -= min(num_bytes, 10)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(visit, one) for one in wanted]:
            done.result(WAIT_S)
    assert taken == [0] and most[0] <= 10


def test_what_is_larger_than_all_room_has_it_alone() -> None:
    room = Room(10)
    with room.take(1000):
        assert room.is_all_mine()
        other = _Holder(lambda: room.take(1))
        assert not other.has_it.wait(0.1)
    other.wait()
    other.end()
    assert not room.is_all_mine()


def test_a_thread_that_has_room_does_not_wait_for_itself() -> None:
    room = Room(10)
    with room.take(8), room.take(8):
        pass
    with room.take(10):
        assert room.is_all_mine()
