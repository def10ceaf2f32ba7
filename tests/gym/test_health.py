"""A sick place is taken out, and a candidate that kills judges is not mistaken for one."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.death_verdict import idle_request
from kernel_core.gym.pool import judge_host
from kernel_core.gym.pool.health_probe import known_request
from kernel_core.gym.pool.judge_host import JudgeLost, LocalHost
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.records import Candidate, Problem, Verdict
from tests.fixtures.processes import children

MakeRequest = Callable[..., JudgeRequest]
_MARKED = "judgekiller"
_KILLER = f"""
import ctypes
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.CDLL(None).prctl(15, b"{_MARKED}", 0, 0, 0)
        time.sleep(60)
"""
"""Names its process, so that the test can end the judge of whoever runs it."""


@pytest.fixture
def own_fork_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gym that is opened now shares its fork root with no other."""
    monkeypatch.setattr(judge_host, "SHARED", judge_host.ForkRoots("cpu"))


def _fork_root() -> int:
    """The newest child of this process."""
    return children(os.getpid())[-1]


@contextmanager
def _meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(0.02):
            act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_answers_of_a_healthy_judge_are_known(gym: PooledGym) -> None:
    known, idle = gym.judge([known_request(), idle_request(known_request())])
    assert (known.verdict, idle.verdict) == (Verdict.CORRECT, Verdict.WRONG)
    assert gym.taken_out == ()


def test_a_cluster_that_is_not_there_is_refused_at_once() -> None:
    pytest.importorskip("ray", reason="needs the `cluster` extra")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(GymUnavailable, match=f"no Ray cluster at gym.ray_address={address}"):
            open_gym(GymConfig(cluster="ray", ray_address=address))


@pytest.mark.slow
@pytest.mark.usefixtures("own_fork_root")
def test_a_candidate_that_kills_its_judges_answers_for_it(
    problems: dict[str, Problem], softmax_request: MakeRequest
) -> None:
    killed: list[int] = []

    def kill_judge_of_marked() -> None:
        for judge in children(fork_root)[1:]:
            for runner in [pid for fork_server in children(judge) for pid in children(fork_server)]:
                if _MARKED in _comm(runner) and judge not in killed:
                    os.kill(judge, signal.SIGKILL)
                    killed.append(judge)

    with open_gym(GymConfig(workers=2)) as gym:
        fork_root = _fork_root()
        candidate = Candidate.from_source(_KILLER)
        with _meanwhile(kill_judge_of_marked):
            requests = [softmax_request(candidate=candidate, seed=None)]
            killer, *others = gym.judge(requests + [softmax_request(number) for number in range(400, 404)])
        assert gym.taken_out == ()
    assert len(killed) == 6
    assert killer.verdict is Verdict.CRASHED
    assert [finding.rule for finding in killer.findings if finding.rule == "judge_died"] == ["judge_died"]
    assert all(one.correct for one in others)


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.slow
@pytest.mark.usefixtures("own_fork_root")
def test_a_place_whose_judges_keep_dying_is_taken_out_and_work_goes_to_the_other(
    softmax_request: MakeRequest, caplog: pytest.LogCaptureFixture
) -> None:
    with open_gym(GymConfig(workers=2)) as gym:
        fork_root = _fork_root()
        gym.judge([softmax_request(number) for number in range(500, 504)])
        healthy = children(fork_root)[1]

        def kill_all_others() -> None:
            for judge in children(fork_root)[1:]:
                if judge != healthy:
                    os.kill(judge, signal.SIGKILL)

        requests = [softmax_request(number) for number in range(504, 520)]
        with _meanwhile(kill_all_others):
            give_up = time.monotonic() + 60
            while not gym.taken_out and time.monotonic() < give_up:
                assert all(one.correct for one in gym.judge(requests))
                requests = [request.model_copy(update={"rejudge": True}) for request in requests]
        assert [one.reason.partition(" (")[0] for one in gym.taken_out] == ["6 fresh judges failed the probe"]
        assert len(gym.places) == 1
    assert [record.message.count("is taken out") for record in caplog.records].count(1) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("own_fork_root")
def test_when_no_place_is_left_the_error_names_the_reasons(softmax_request: MakeRequest) -> None:
    with open_gym(GymConfig(workers=1)) as gym:
        fork_root = _fork_root()
        gym.judge([softmax_request(600)])
        for pid in (fork_root, *children(fork_root)):
            # No memory can be laid out for candidates any more, by present judges or future ones.
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
        with pytest.raises(GymUnavailable, match=r"no judge is left \(judge 0: 6 fresh judges.*too large"):
            gym.judge([softmax_request(601)])
        with pytest.raises(GymUnavailable, match="no judge is left"):
            gym.judge([softmax_request(602)])


def test_a_judge_that_cannot_begin_says_why(brief_gym: PooledGym, monkeypatch: pytest.MonkeyPatch) -> None:
    host, nothing = brief_gym._owned, {"request": {}, "seed": 0, "blamed": ""}
    assert isinstance(host, LocalHost)
    first, second = (len(brief_gym.places) + number for number in (1, 2))  # places without a judge
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(host, "base", "/no/such/folder")
        with pytest.raises(JudgeLost, match="its last words: FileNotFoundError"):
            host.connect(first).ask(nothing, 60)
    with pytest.raises(JudgeLost) as failure:
        host.connect(second).ask(nothing, 60)
    assert "FileNotFoundError" not in str(failure.value)  # another judge's
