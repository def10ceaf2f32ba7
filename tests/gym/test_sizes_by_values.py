"""Outputs with sizes that depend on the inputs' values: elements that a mask selects, for example.

What a GPU's judge does for them is done here in a processor's memory.
"""

from __future__ import annotations

import tempfile
from typing import Any, cast

import pytest

from kernel_core.config import GymConfig
from kernel_core.gym.channel.shared_arena import Arena
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge import cuda_problem_cache
from kernel_core.gym.judge.cuda_problem_cache import CudaPrepared
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.workers.payload import deliver
from kernel_core.gym.workers.workers import CpuWorkers
from kernel_core.problems.source import parse_problem
from kernel_core.records import NoCandidate

PROBLEM = """
import torch
import torch.nn as nn

M = 20
N = 50

class Model(nn.Module):
    def forward(self, x, mask):
        return {result}

def get_inputs():
    return [torch.randn(M, N), torch.rand(M, N) > torch.rand(())]

def get_init_inputs():
    return []
"""
SELECTED = ("torch.masked_select(x, mask)", "torch.nonzero(mask)", "torch.unique(mask * x.round())")
ROUNDED = "x[(x / 3) * 3 > x]"
"""Rounding decides how many there are: another number in float64."""


def _request(result: str) -> JudgeRequest:
    problem = parse_problem(PROBLEM.format(result=result), id="test/sizes", suite="test")
    return JudgeRequest(problem=problem, candidate=NoCandidate(reason="none"), sizes={})


@pytest.fixture
def prepared() -> CudaPrepared:
    """The store of a GPU's judge, with references on a processor."""
    config = GymConfig()
    return CudaPrepared(config, CpuWorkers(config, cast(Any, None), tempfile.gettempdir()), 1 << 30)


def _shapes(prepared: CudaPrepared, reference: Reference, seeds: range) -> list[tuple[int, ...]]:
    return [prepared.trial(reference, seed, "trial 1", "own").expected[0].shape for seed in seeds]


@pytest.mark.parametrize("result", SELECTED)
def test_each_trial_has_its_own_sizes_even_where_large_ones_are_made_again(
    result: str, prepared: CudaPrepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_problem_cache, "_LARGE_BYTES", 64)
    reference = prepared.reference(_request(result))
    assert not prepared.has_fixed_sizes(reference, 1, ["timed 0"])
    seeds = range(2, 6)
    found = _shapes(prepared, reference, seeds)
    assert found == [
        reference.trial(prepared.number(seed, "trial 1", "own"), "own").expected[0].shape for seed in seeds
    ]
    assert len(set(found)) > 1


def test_outputs_of_one_size_are_timed_and_made_again(
    prepared: CudaPrepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_problem_cache, "_LARGE_BYTES", 64)
    reference = prepared.reference(_request("x * mask"))
    assert prepared.has_fixed_sizes(reference, 1, ["timed 0"])
    assert not prepared.trial(reference, 2, "trial 1", "own").has_values


def test_the_trial_that_shows_the_sizes_is_made_once(prepared: CudaPrepared) -> None:
    reference = prepared.reference(_request("x * mask"))
    prepared.has_fixed_sizes(reference, 1, ["timed 0"])
    kept = prepared.trial(reference, 1, "timed 0", "own")
    assert kept is prepared.trial(reference, 1, "timed 0", "own")
    assert kept.seed == prepared.number(1, "timed 0", "own")
    assert kept.is_exact is False and kept.has_values


def test_two_draws_of_one_size_by_chance_are_not_enough(prepared: CudaPrepared) -> None:
    reference = prepared.reference(_request("x[(x > 2.5).any(1)]"))
    like = prepared.outline(reference, 1).expected[0].shape
    labels = [f"timed {number}" for number in range(20)]
    shapes = {label: prepared.trial(reference, 1, label, "own").expected[0].shape for label in labels}
    labels.sort(key=lambda label: shapes[label] != like)
    assert shapes[labels[0]] == like != shapes[labels[-1]]
    assert not prepared.has_fixed_sizes(reference, 1, labels)


def test_a_trial_that_outgrows_a_lent_arena_gets_one_of_its_own(prepared: CudaPrepared) -> None:
    reference = prepared.reference(_request(SELECTED[0]))
    trial = prepared.trial(reference, 2, "trial 1", "own")
    delivery = deliver(reference, trial, arena=Arena.create(1 << 12))
    assert not delivery.is_lent
    assert delivery.arena.tensor(delivery.output_slots[0]).shape == trial.expected[0].shape
    delivery.close()
    assert deliver(reference, trial, arena=Arena.create(1 << 20)).is_lent


def test_sizes_that_rounding_decides_are_those_of_the_reference_itself(prepared: CudaPrepared) -> None:
    reference = prepared.reference(_request(ROUNDED))
    trial = reference.trial(3, "own")
    assert reference.exactly(trial).expected[0].shape == trial.expected[0].shape
