"""Gradients behind products in TF32: numbers far from zero are tried only where products that are rounded in
another way give the same gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch

from kernel_core.gym.numerics.compare import each_passes
from kernel_core.gym.numerics.error_model import nearest, truncated
from kernel_core.gym.oracle.input_families import HOSTILE_TO_GRADIENTS, is_far
from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.source import parse_problem

_SOURCE = """# backward: inputs
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, w, b):
        return ACTIVATION(x @ w + b)

def get_inputs():
    return [torch.randn(64, 512), torch.randn(512, 192) / 24, torch.randn(192)]

def get_init_inputs():
    return []
"""
_FAR, _MODERATE = HOSTILE_TO_GRADIENTS[:2]
Round = Callable[[torch.Tensor], torch.Tensor]


def _reference(activation: str) -> Reference:
    source = _SOURCE.replace("ACTIVATION", activation)
    return Reference(parse_problem(source, id="test/gradients", suite="test"), {}, tf32=True)


def _kernel(inputs: list[torch.Tensor], rounded: Round, *, curve: float = 1.0) -> list[torch.Tensor]:
    """Forward with rounded operands, backward with whole ones; `curve` 0 leaves out a term of the slope."""
    x, w, b, [above] = inputs
    z = rounded(x) @ rounded(w) + b
    share = (1 + torch.erf(z * math.sqrt(0.5))) / 2
    slope = share + curve * z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    below = above * slope
    return [z * share, below @ w.T, x.T @ below, below.sum(0)]


def test_far_numbers_are_tried_where_nothing_steep_follows_a_product() -> None:
    assert is_far(_FAR) and not is_far(_MODERATE)
    steep, plain = _reference("torch.nn.functional.gelu"), _reference("")
    assert not any(steep.trial(seed, _FAR).is_usual for seed in (1, 2, 5))
    assert steep.trial(5, _MODERATE).is_usual and plain.trial(5, _FAR).is_usual


@pytest.mark.parametrize("rounded", [truncated, nearest], ids=["truncated", "nearest"])
def test_honest_gradients_pass_on_what_is_tried(rounded: Round) -> None:
    ours = _reference("torch.nn.functional.gelu")
    for seed in range(3):
        trial = ours.trial(seed, _MODERATE)
        given = _kernel(trial.inputs, rounded)
        assert each_passes(given, ours.exactly(trial, functools.partial(each_passes, given)).expected)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda inputs: _kernel(inputs, lambda one: one.bfloat16().float()), id="bfloat16"),
        pytest.param(lambda inputs: _kernel(inputs, truncated, curve=0.0), id="a term of the slope"),
        pytest.param(lambda inputs: _kernel(inputs, truncated, curve=0.9), id="a factor in the slope"),
        pytest.param(lambda inputs: _kernel([*inputs[:2], 0 * inputs[2], inputs[3]], nearest), id="no bias"),
    ],
)
@pytest.mark.parametrize("draw", ["own", _MODERATE])
def test_wrong_gradients_fail_there(
    given: Callable[[list[torch.Tensor]], list[torch.Tensor]], draw: str
) -> None:
    ours = _reference("torch.nn.functional.gelu")
    trial = ours.trial(5, draw)
    assert not each_passes(given(trial.inputs), ours.exactly(trial).expected)
