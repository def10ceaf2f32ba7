"""Two gyms for all tests of the judge: starting one costs more than most tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from exploit_files import PROBLEMS, SMALL_SOFTMAX, text_of

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, Problem
from kernel_core.store import Store

PATIENCE_S = 120.0
HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"


def judged_with_neighbours(
    gym: PooledGym, files: Sequence[Path], count: int, request: Callable[[Path], JudgeRequest]
) -> Callable[[Path], Evaluation]:
    """Gives the evaluation of one of `files`, judged side by side with its `count` neighbours, which the same
    process will ask for next."""
    known: dict[Path, Evaluation] = {}

    def judged(file: Path) -> Evaluation:
        if file not in known:
            start = files.index(file) // count * count
            together = files[start : start + count]
            known.update(zip(together, gym.judge([request(one) for one in together]), strict=True))
        return known[file]

    return judged


@pytest.fixture(scope="session")
def gym_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Where the gym keeps its evaluations."""
    return Store(tmp_path_factory.mktemp("gym"))


@pytest.fixture(scope="session")
def gym(gym_store: Store) -> Iterator[PooledGym]:
    """Two judges with a store; a deadline that honest candidates keep on a machine six times as slow too."""
    with open_gym(GymConfig(workers=2, deadline_s=PATIENCE_S), cache=gym_store) as opened:
        yield opened


@pytest.fixture(scope="session")
def brief_gym() -> Iterator[PooledGym]:
    """Several judges with a short deadline, for candidates that never end."""
    with open_gym(GymConfig(workers=3, deadline_s=1.5)) as opened:
        yield opened


@pytest.fixture(scope="session")
def problems() -> dict[str, Problem]:
    """The small problems that exploits and controls are written for, by name."""
    return PROBLEMS


@pytest.fixture(scope="session")
def softmax_request() -> Callable[..., JudgeRequest]:
    """Requests for one problem that differ in a comment, so that each is a candidate of its own."""
    text = text_of("honest_softmax")

    def make(number: int = 0, **changes: object) -> JudgeRequest:
        candidate = Candidate.from_source(f"{text}\n# candidate {number}\n")
        request = JudgeRequest(problem=SMALL_SOFTMAX, candidate=candidate, seed=5)
        return request.model_copy(update=changes)

    return make


@pytest.fixture(scope="session")
def judge_text(gym: PooledGym) -> Callable[..., Evaluation]:
    """Judge a candidate's text for a problem's text, with the usual imports before both."""

    def judge(problem: str, candidate: str, seed: int = 1, **sizes: int) -> Evaluation:
        parsed = parse_problem(HEAD + problem, id="test/inline", suite="test")
        request = JudgeRequest(
            problem=parsed, candidate=Candidate.from_source(HEAD + candidate), sizes=sizes or None, seed=seed
        )
        [evaluation] = gym.judge([request])
        return evaluation

    return judge
