"""The pool: order, once each, faults of ours survived, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from exploit_files import EXPLOITS, FILES

from kernel_core.config import GymConfig
from kernel_core.errors import Corrupt, GymUnavailable
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.pool import judge_host
from kernel_core.gym.pool.judge_host import LocalHost
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.pool.verdict_cache import request_key
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, NotJudged, Problem, Verdict
from kernel_core.store import Store
from tests.fixtures.processes import children, command, descendants

MakeRequest = Callable[..., JudgeRequest]


def _alive(pids: list[int]) -> list[int]:
    def running(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    return [pid for pid in pids if running(pid)]


def _wait_until_gone(pids: list[int], seconds: float = 20.0) -> list[int]:
    give_up = time.monotonic() + seconds
    while _alive(pids) and time.monotonic() < give_up:
        time.sleep(0.05)
    return _alive(pids)


def test_results_come_in_order_and_equal_requests_are_judged_once(
    gym: PooledGym, softmax_request: MakeRequest, problems: dict[str, Problem]
) -> None:
    broken = Candidate.from_source("class ModelNew:\n    pass\nimport nothing_there\n")
    requests = [
        softmax_request(100),
        softmax_request(candidate=broken),
        softmax_request(100),
        softmax_request(candidate=broken, problem=problems["relu"]),
    ]
    seen: list[tuple[int, int]] = []
    evaluations = gym.judge(requests, lambda label, done, total: seen.append((done, total)))
    assert [one.verdict for one in evaluations] == [
        Verdict.CORRECT,
        Verdict.NOT_COMPILED,
        Verdict.CORRECT,
        Verdict.NOT_COMPILED,
    ]
    assert evaluations[0] == evaluations[2]
    assert evaluations[3].problem_id == problems["relu"].id
    assert seen[-1] == (4, 4)
    assert gym.version == GYM_VERSION


@pytest.mark.exhaustive
def test_a_problem_on_which_judges_fail_stops_no_other(gym: PooledGym, softmax_request: MakeRequest) -> None:
    request = softmax_request(100)
    copied = """class Model(nn.Module):
    def __deepcopy__(self, memo):
        raise RuntimeError("there is one of me")
"""
    source = request.problem.source.replace("class Model(nn.Module):\n", copied)
    # A reference that draws is copied, to see whether its outputs are random.
    source = source.replace("return ", "return 0 * torch.rand(()) + ", 1)
    bad = parse_problem(source, id="test/single", suite="test")
    outcomes = gym.judge([softmax_request(100, problem=bad), request])
    assert isinstance(outcomes[0], NotJudged) and "there is one of me" in outcomes[0].reason
    assert isinstance(outcomes[1], Evaluation) and outcomes[1].correct


def test_cuda_is_refused_in_words() -> None:
    with pytest.raises(GymUnavailable, match="GPUs are visible"):
        open_gym(GymConfig(device="cuda", workers=4096))


def test_known_evaluations_come_from_the_store(
    gym: PooledGym, gym_store: Store, softmax_request: MakeRequest
) -> None:
    request = softmax_request(1)
    [first] = gym.judge([request])
    [again] = gym.judge([request])
    [anew] = gym.judge([request.model_copy(update={"rejudge": True})])
    assert again == first
    assert anew.seconds != first.seconds
    key = request_key(request, gym.config)
    name = f"evaluations/{key[:2]}/{key}.json"
    gym_store.write(name, b"{")
    with pytest.raises(Corrupt, match="not valid JSON"):
        gym.judge([request])
    gym_store.remove(name)


def test_a_measured_answer_has_another_key_than_one_without_timing(softmax_request: MakeRequest) -> None:
    """Only a GPU measures: on a CPU both are the same answer."""
    request = softmax_request(1)
    untimed = request.model_copy(update={"timing": False})
    cpu, cuda = GymConfig(), GymConfig(device="cuda")
    assert request_key(untimed, cpu) == request_key(request, cpu)
    assert request_key(untimed, cuda) != request_key(request, cuda)


def test_killed_judges_lose_no_candidate(gym: PooledGym, softmax_request: MakeRequest) -> None:
    requests = [softmax_request(number) for number in range(200, 208)]
    gym.judge(requests[:3])
    judges = _judges(gym)
    assert len(judges) >= 1

    def kill_all() -> None:
        for judge in judges:
            time.sleep(0.3)
            os.kill(judge, signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    evaluations = gym.judge(requests)
    killer.join()
    assert [one.candidate_sha for one in evaluations] == [r.candidate.sha256 for r in requests]
    assert all(one.correct for one in evaluations), [one.feedback for one in evaluations]


def _judges(gym: PooledGym) -> list[int]:
    """The children of a gym's fork root, but for its first, which serves compilers."""
    host = gym._owned
    assert isinstance(host, LocalHost)
    [fork_root] = [pid for pid in children(os.getpid()) if str(Path(host.base).parent) in command(pid)]
    return children(fork_root)[1:]


def test_nothing_survives_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from kernel_core.config import GymConfig\n"
        "from kernel_core.gym.pool.open_gym import open_gym\n"
        "from kernel_core.gym.contract.requests import JudgeRequest\n"
        "from kernel_core.problems.load import load_file\n"
        "from kernel_core.records import Candidate\n"
        "gym = open_gym(GymConfig(workers=1, deadline_s=100.0))\n"
        "print('open', flush=True)\n"
        f"problem = load_file({str(EXPLOITS / 'problems' / 'relu.py')!r})\n"
        f"text = open({str(FILES['ignores_signals'])!r}).read()\n"
        "gym.judge([JudgeRequest(problem=problem, candidate=Candidate.from_source(text))])\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "open\n"
    give_up = time.monotonic() + 30
    while len(everyone := descendants(parent.pid)) < 6 and time.monotonic() < give_up:
        time.sleep(0.1)
    assert len(everyone) == 6  # fork root, compilers, judge, a fork server of each, the runner
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert _wait_until_gone(everyone) == []


@pytest.mark.exhaustive
def test_judging_many_leaves_memory_as_it_was(gym: PooledGym, softmax_request: MakeRequest) -> None:
    def resident_mb() -> float:
        pages = sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            for pid in descendants(os.getpid())
            if Path(f"/proc/{pid}/statm").exists()
        )
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    gym.judge([softmax_request(number, seed=number) for number in range(4)])
    before = resident_mb()
    gym.judge([softmax_request(number, seed=number) for number in range(4, 14)])
    assert resident_mb() - before < 30


@pytest.mark.exhaustive
def test_close_ends_every_process_and_removes_every_file(
    softmax_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_host, "SHARED", judge_host.ForkRoots("cpu"))
    before = set(descendants(os.getpid()))
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o711)  # runners are other users
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    first, second = (open_gym(GymConfig(workers=1)) for _ in range(2))
    first.judge([softmax_request(300)])
    shared = set(descendants(os.getpid())) - before
    second.judge([softmax_request(301)])
    of_second = set(descendants(os.getpid())) - before - shared
    assert len(shared) == 5  # fork root, compilers and their fork server, judge and its fork server
    assert len(of_second) == 3  # a judge, and two fork servers
    second.close()
    assert _wait_until_gone(sorted(of_second)) == []
    assert first.judge([softmax_request(302)])[0].correct
    first.close()
    assert _wait_until_gone(sorted(shared)) == []
    folder.rmdir()  # which it refuses unless it is empty
    with pytest.raises(GymUnavailable, match="closed"):
        first.judge([softmax_request(303)])
