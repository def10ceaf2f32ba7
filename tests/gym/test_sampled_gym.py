"""Fast judging: what it leaves out, what it still refuses, and how often the full judgement differs."""

from __future__ import annotations

import pytest
from exploit_files import FILES, header_of, text_of

from kernel_core.gym.contract.requests import Compared, JudgeRequest
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.pool.sampled_gym import SampledGym
from kernel_core.records import Candidate, Evaluation, NoCandidate, Problem, Verdict

HONEST, WRONG, CHEAT = "honest_softmax", "wrong_second_chunk", "library_for_own_draws"
"""The wrong one is so at larger sizes only."""


@pytest.fixture
def requests(problems: dict[str, Problem]) -> list[JudgeRequest]:
    """An honest candidate, a wrong one, one that cheats, and an answer without a kernel."""
    files = [FILES[name] for name in (HONEST, WRONG, CHEAT)]
    made = [
        JudgeRequest(
            problem=problems[header_of(file)["problem"]],
            candidate=Candidate.from_source(file.read_text()),
            seed=11,
            timing=False,
        )
        for file in files
    ]
    return [*made, made[0].model_copy(update={"candidate": NoCandidate(reason="no kernel")})]


def _verdicts(evaluations: list[Evaluation]) -> list[Verdict]:
    return [one.verdict for one in evaluations]


def test_a_fast_judgement_leaves_out_larger_sizes_and_gives_no_speed(
    gym: PooledGym, requests: list[JudgeRequest]
) -> None:
    sampled = SampledGym(gym, 1e-9)
    honest, wrong, cheat, nothing = sampled.judge(requests)
    assert _verdicts([honest, wrong]) == [Verdict.CORRECT] * 2, wrong.feedback
    assert _verdicts([cheat, nothing]) == [Verdict.HACKED, Verdict.MALFORMED]
    assert not {"grown", "beyond"} & set(honest.phases_s)
    assert (honest.predicted_speedup, honest.traffic, honest.reference_traffic) == (None, None, None)
    assert honest.provenance is not None and honest.provenance.own_kernel_share == 1.0
    assert sampled.take_compared() == Compared()


def test_the_full_verdict_counts_where_both_are_there(gym: PooledGym, requests: list[JudgeRequest]) -> None:
    sampled = SampledGym(gym, 1.0)
    found = sampled.judge(requests)
    assert _verdicts(found) == [Verdict.CORRECT, Verdict.WRONG, Verdict.HACKED, Verdict.MALFORMED]
    assert found[0].predicted_speedup is not None
    assert sampled.take_compared() == Compared(num_compared=3, num_differing=1)
    assert sampled.take_compared() == Compared()


def test_where_speed_is_needed_all_is_judged_in_full(gym: PooledGym, requests: list[JudgeRequest]) -> None:
    sampled = SampledGym(gym, 1e-9)
    found = sampled.judge([one.model_copy(update={"timing": True}) for one in requests])
    assert _verdicts(found) == [Verdict.CORRECT, Verdict.WRONG, Verdict.HACKED, Verdict.MALFORMED]
    assert found[0].predicted_speedup is not None


@pytest.mark.exhaustive
def test_the_share_is_chosen_by_the_candidate(gym: PooledGym, problems: dict[str, Problem]) -> None:
    text = text_of(HONEST)
    requests = [
        JudgeRequest(
            problem=problems["softmax_rows"],
            candidate=Candidate.from_source(f"{text}\n# {number}\n"),
            seed=11,
            timing=False,
        )
        for number in range(4)
    ]
    again = [SampledGym(gym, 0.5).judge(requests) for _ in range(2)]
    in_full = [[one.predicted_speedup is not None for one in found] for found in again]
    assert in_full[0] == in_full[1] and 0 < sum(in_full[0]) < 4
