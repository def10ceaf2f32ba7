"""Numbers that host code reads from small inputs, as a count of labels: correct, of unknown provenance."""

from __future__ import annotations

import pytest
import torch
from exploit_files import FILES, request_of

from kernel_core.gym.oracle.held_inputs import HoldingReference
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.records import Problem, Verdict


@pytest.mark.parametrize(
    "name",
    [
        "honest_mean_over_labels",
        "honest_mean_with_a_constant",
        "honest_mean_of_alikes",
        "honest_kept_by_a_mask",
        pytest.param("honest_mean_over_weights", marks=pytest.mark.exhaustive),
    ],
)
def test_work_that_follows_from_numbers_of_the_inputs_is_correct_and_has_no_speed(
    name: str, gym: PooledGym
) -> None:
    [found] = gym.judge([request_of(FILES[name])])
    assert found.verdict is Verdict.CORRECT, found.feedback
    assert "provenance_unknown" in {one.rule for one in found.findings}
    assert found.predicted_speedup is None


def test_small_inputs_are_held_and_the_larger_ones_drawn_again(problems: dict[str, Problem]) -> None:
    problem = problems["weighted_loss"]
    reference = Reference(problem, {**problem.cpu_constants})
    trial = reference.trial(1, "normal")
    holding = HoldingReference(reference, trial)
    assert holding.is_redrawn == [True, False, False]
    other = holding.trial(2, "normal")
    logits, *small = (torch.equal(*pair) for pair in zip(trial.inputs, other.inputs, strict=True))
    assert not logits and all(small)
    assert not torch.equal(trial.expected[0].value, other.expected[0].value)
