"""Products, linear layers with chains, elementwise operators."""

from __future__ import annotations

import pytest
import torch

from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.modules.generate import generate_modules

from .conftest import draw


@pytest.mark.parametrize("family", ["elementwise_chain", "linear_groupnorm"])
def test_other_inputs_give_another_output(family: str) -> None:
    """A clamp may make one value of all inputs, or the same largest value of all rows."""
    for problem in generate_modules("train", 52, 1, (family,)):
        reference = Reference(problem, problem.cpu_constants)
        one, other = (reference.trial(seed, "own", exact=False).expected[0].value for seed in (1, 2))
        assert not torch.allclose(one, other, 1e-3, 1e-3), problem.source


def test_activations_have_one_operator_and_few_have_over_a_hundred_million_elements() -> None:
    large = 0
    for seed in range(400):
        draft = draw("activation", seed)
        assert len(draft.operators) == 1
        numel = 1
        for size in draft.sizes:
            numel *= size.gpu
        assert 1_000_000 <= numel <= 1_610_612_736
        large += numel > 100_000_000
    assert 0 < large <= 400 * 0.08
