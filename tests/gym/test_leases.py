"""Whatever places do with their candidates, each gets exactly one outcome."""

from __future__ import annotations

import queue
import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kernel_core.errors import GymUnavailable
from kernel_core.gym.pool.health_probe import known_request
from kernel_core.gym.pool.judge_host import JudgeLost
from kernel_core.gym.pool.leases import Lease, Leases

PLACES = ("a", "b", "c")
REQUEST = known_request()


class Work(RuleBasedStateMachine):
    """Places take, finish, fail, repeat themselves and close in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.outcomes: queue.SimpleQueue = queue.SimpleQueue()
        self.open: set[str] = set()
        self.held: list[tuple[str, Lease]] = []
        self.over: list[Lease] = []
        self.waiting = self.submitted = 0

    @rule(place=st.sampled_from(PLACES))
    def place_opens(self, place: str) -> None:
        self.leases.open_place(place)
        self.open.add(place)

    @rule(place=st.sampled_from(PLACES))
    def place_closes(self, place: str) -> None:
        self.leases.close_place(place)
        self.open.discard(place)
        assert self.leases.take(place) is None

    @rule(count=st.integers(1, 3))
    def work_comes(self, count: int) -> None:
        new = [Lease(f"{self.submitted + i}", REQUEST, 0, self.outcomes) for i in range(count)]
        self.leases.submit(new)
        self.submitted += count
        self.waiting += count

    @precondition(lambda self: self.waiting and self.open)
    @rule(data=st.data())
    def place_takes(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.open)))
        taken: queue.SimpleQueue = queue.SimpleQueue()
        thread = threading.Thread(target=lambda: taken.put(self.leases.take(place)), daemon=True)
        thread.start()
        thread.join(0.02)
        if thread.is_alive():  # all that waits has failed there, and is left to the other places
            self.leases.close_place(place)
            self.open.discard(place)
            assert self.open
        lease = taken.get(timeout=5)
        if lease is not None:
            assert lease not in [other for _, other in self.held]
            self.held.append((place, lease))
            self.waiting -= 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def place_finishes(self, data: st.DataObject) -> None:
        _, lease = self._let_go(data)
        self.leases.finish(lease, GymUnavailable("an outcome"))
        self.over.append(lease)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), is_to_blame=st.booleans())
    def judge_dies(self, data: st.DataObject, is_to_blame: bool) -> None:
        place, lease = self._let_go(data)
        if is_to_blame:
            lease.failures.append(JudgeLost("it died"))
            lease.failed_at = place
        self.leases.give_back(lease)
        self.waiting += 1

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def late_words_are_not_heard(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.over))
        self.leases.finish(lease, GymUnavailable("again"))
        self.leases.give_back(lease)

    @invariant()
    def everyone_is_somewhere_once(self) -> None:
        assert self.outcomes.qsize() == len(self.over)
        assert self.waiting + len(self.held) + len(self.over) == self.submitted

    def teardown(self) -> None:
        for _, lease in self.held:
            self.leases.give_back(lease)
        self.leases.fail_waiting(GymUnavailable("nobody is left"))
        keys = [self.outcomes.get_nowait()[0] for _ in range(self.outcomes.qsize())]
        assert sorted(keys, key=int) == [str(number) for number in range(self.submitted)]

    def _let_go(self, data: st.DataObject) -> tuple[str, Lease]:
        return self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))


TestWork = Work.TestCase
TestWork.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_candidates_of_a_problem_go_to_one_place_while_others_have_work() -> None:
    leases, outcomes = Leases(), queue.SimpleQueue()
    problems = [REQUEST.problem.model_copy(update={"sha256": name}) for name in "pqr"]
    requests = [REQUEST.model_copy(update={"problem": problem}) for problem in problems for _ in range(2)]
    for place in "ab":
        leases.open_place(place)
    leases.submit([Lease(f"{i}", request, 0, outcomes) for i, request in enumerate(requests)])
    taken = [(place, leases.take(place)) for place in "abbaba"]
    assert [(place, lease.key) for place, lease in taken if lease] == [
        ("a", "0"),
        ("b", "2"),
        ("b", "3"),
        ("a", "1"),
        ("b", "4"),
        ("a", "5"),  # rather another's problem than nothing
    ]
