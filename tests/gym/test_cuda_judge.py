"""The judge of a GPU: the same candidates get what they deserve, and honest ones a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernel_core.config import GymConfig
from kernel_core.gym import open_gym
from kernel_core.gym.pool import PooledGym
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.records import Candidate, Constant, Evaluation, Problem, Verdict

from .conftest import header_of, judged_with_neighbours

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

_EXPLOITS = sorted((Path(__file__).parents[1] / "exploits").glob("*.py"))
_SIDE_BY_SIDE = 50
_HONEST = [file for file in _EXPLOITS if file.stem.startswith("honest_")]


@pytest.fixture(scope="module")
def cuda_gym() -> Iterator[PooledGym]:
    """One judge of one GPU, several candidates at once."""
    with open_gym(GymConfig(device="cuda", workers=1, in_flight=8, deadline_s=10.0)) as opened:
        yield opened


@pytest.fixture(scope="module")
def evaluation_of(cuda_gym: PooledGym, problems: dict[str, Problem]) -> Callable[[Path], Evaluation]:
    """The evaluation of an exploit or control, at the small sizes that its expectation is written for."""

    def request(file: Path) -> JudgeRequest:
        problem = problems[header_of(file)["problem"]]
        candidate = Candidate.from_source(file.read_text())
        return JudgeRequest(problem=problem, candidate=candidate, sizes=problem.cpu_constants)

    return judged_with_neighbours(cuda_gym, _EXPLOITS, _SIDE_BY_SIDE, request)


@pytest.mark.parametrize("file", _EXPLOITS, ids=lambda file: file.stem)
def test_candidate_gets_the_verdict_it_deserves_on_a_gpu(
    file: Path, evaluation_of: Callable[[Path], Evaluation]
) -> None:
    header, evaluation = header_of(file), evaluation_of(file)
    expected = header.get("cuda", header["expect"])
    if expected == "not correct":
        assert not evaluation.correct, evaluation.feedback
    else:
        assert evaluation.verdict == expected, evaluation.feedback


@pytest.mark.parametrize("file", _HONEST, ids=lambda file: file.stem)
def test_honest_kernels_are_timed_at_full_size(
    file: Path, cuda_gym: PooledGym, problems: dict[str, Problem]
) -> None:
    problem = problems[header_of(file)["problem"]]
    request = JudgeRequest(problem=problem, candidate=Candidate.from_source(file.read_text()))
    [evaluation] = cuda_gym.judge([request])
    assert evaluation.correct, evaluation.feedback
    assert evaluation.timing is not None and evaluation.reference_timing is not None
    assert evaluation.timing.clock == "device_events", evaluation.findings
    assert evaluation.provenance is not None and evaluation.provenance.own_kernel_share


def test_the_cage_is_closed_on_a_gpu_too(evaluation_of: Callable[[Path], Evaluation]) -> None:
    [softmax] = [file for file in _HONEST if file.stem == "honest_softmax"]
    in_force = set(evaluation_of(softmax).sandbox)
    assert {"files", "network", "processes", "rlimits"} <= in_force


def test_candidates_that_fill_the_gpu_together_are_judged_as_if_alone(
    cuda_gym: PooledGym, problems: dict[str, Problem]
) -> None:
    """Each has 12.8 GB of inputs and outputs, and as much again while it works."""
    texts = {file.stem: file.read_text() for file in _EXPLOITS}
    honest, wrong = texts["honest_softmax"], texts["wrong_by_a_thousandth"]
    sizes: dict[str, Constant] = {"M": 400_000, "N": 4_000}
    requests = [
        JudgeRequest(
            problem=problems["softmax_rows"],
            candidate=Candidate.from_source(f"{text}\n# {number}\n"),
            sizes=sizes,
        )
        for number in range(5)
        for text in (honest, wrong)
    ]
    evaluations = cuda_gym.judge(requests)
    assert [evaluation.correct for evaluation in evaluations] == [True, False] * 5
    assert {evaluation.verdict for evaluation in evaluations} == {Verdict.CORRECT, Verdict.WRONG}
