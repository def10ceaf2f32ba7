"""The judge of a GPU: the same candidates get what they deserve, and honest ones a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
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
    config = GymConfig(device="cuda", workers=1, in_flight=8, deadline_s=10.0, baseline="eager")
    with open_gym(config) as opened:
        yield opened


@pytest.fixture(scope="module")
def evaluation_of(cuda_gym: PooledGym, problems: dict[str, Problem]) -> Callable[[Path], Evaluation]:
    """The evaluation of an exploit or control, at the small sizes that its expectation is written for, or
    where it is wrong at full size only, at that."""

    def request(file: Path) -> JudgeRequest:
        header = header_of(file)
        problem = problems[header["problem"]]
        candidate = Candidate.from_source(file.read_text())
        sizes = None if header.get("sizes") == "full" else problem.cpu_constants
        return JudgeRequest(problem=problem, candidate=candidate, sizes=sizes)

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
    if _is_unknown(evaluation):
        assert evaluation.timing is None
        return
    assert evaluation.timing is not None and evaluation.reference_timing is not None
    assert evaluation.timing.clock == "device_events", evaluation.findings
    assert evaluation.provenance is not None and evaluation.provenance.own_kernel_share


@pytest.mark.parametrize("file", _HONEST, ids=lambda file: file.stem)
def test_without_timing_honest_kernels_are_correct_and_have_no_time(
    file: Path, cuda_gym: PooledGym, problems: dict[str, Problem]
) -> None:
    problem = problems[header_of(file)["problem"]]
    candidate = Candidate.from_source(file.read_text())
    [evaluation] = cuda_gym.judge([JudgeRequest(problem=problem, candidate=candidate, timing=False)])
    assert evaluation.correct, evaluation.feedback
    assert (evaluation.timing, evaluation.reference_timing, evaluation.speedup) == (None, None, None)
    assert not {"timed", "baseline"} & set(evaluation.phases_s)
    assert evaluation.provenance is not None
    assert bool(evaluation.provenance.own_kernel_share) != _is_unknown(evaluation)


def _is_unknown(evaluation: Evaluation) -> bool:
    return any(one.rule == "provenance_unknown" for one in evaluation.findings)


def test_a_read_far_outside_is_named_as_such(cuda_gym: PooledGym, problems: dict[str, Problem]) -> None:
    [softmax] = [file for file in _HONEST if file.stem == "honest_softmax"]
    source = softmax.read_text()
    far = source.replace("tl.load(", "tl.load((1 << 44) + ", 1)
    assert far != source
    request = JudgeRequest(
        problem=problems[header_of(softmax)["problem"]], candidate=Candidate.from_source(far)
    )
    [evaluation] = cuda_gym.judge([request])
    assert evaluation.verdict == Verdict.CRASHED
    assert "illegal memory access" in evaluation.feedback


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


_GELU_WITH_MORE_TO_READ = """
import torch
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, num_elements, num_more, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < num_elements)
    more = tl.load(x_ptr + (offsets + num_elements // 2) % num_elements, mask=offsets < num_more, other=0.0)
    inner = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + offsets, x * tl.sigmoid(inner) + 0.0 * more, mask=offsets < num_elements)


class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > OWN_CALLS:
            return F.gelu(x, approximate="tanh")
        y = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), x.numel() // 3, BLOCK=1024)
        return y
"""


def test_the_library_in_timed_calls_is_not_faster_than_what_was_recorded(
    cuda_gym: PooledGym, problems: dict[str, Problem]
) -> None:
    """Its outputs differ in a few bits from the own kernel's, which reads a third of its inputs twice."""
    texts = [_GELU_WITH_MORE_TO_READ.replace("OWN_CALLS", number) for number in ("1_000_000", "3")]
    beyond_the_cache: dict[str, Constant] = {"M": 16_384, "N": 4_096}
    requests = [
        JudgeRequest(
            problem=problems["gelu_tanh"], candidate=Candidate.from_source(text), sizes=beyond_the_cache
        )
        for text in texts
    ]
    always, in_trials_only = cuda_gym.judge(requests)
    assert always.correct and in_trials_only.correct, (always.feedback, in_trials_only.feedback)
    assert always.timing and always.reference_timing and in_trials_only.timing
    assert always.reference_timing.median_ms < 0.93 * always.timing.median_ms, "the library is no faster"
    assert in_trials_only.timing.median_ms > 0.93 * always.timing.median_ms
