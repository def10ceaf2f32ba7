"""What nothing decides is not anything: it is what the reference gives when its results stray."""

from __future__ import annotations

import pytest
import torch

from kernel_core.gym.numerics.compare import all_pass
from kernel_core.gym.numerics.expected import Expected, Undecided
from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.source import parse_problem

_SOURCE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return FORWARD
def get_inputs():
    return [torch.randint(0, 9, (40, 30)) / 8]
def get_init_inputs():
    return []
"""


def _undecided(wanted: Expected) -> torch.Tensor:
    assert isinstance(wanted.tolerance, Undecided)
    return wanted.tolerance.places


def _expected(forward: str, precision: str = "own") -> tuple[torch.Tensor, Expected]:
    problem = parse_problem(_SOURCE.replace("FORWARD", forward), id="test/inline", suite="test")
    problem = problem.model_copy(update={"precision": precision})
    trial = Reference(problem, {}).trial(3, "own")
    return trial.inputs[0].double(), trial.expected[0]


def _last_first(values: torch.Tensor, count: int) -> torch.Tensor:
    """The places of the largest, of equal ones the last first, which torch does not do."""
    width = values.shape[-1]
    return width - 1 - values.flip(-1).sort(descending=True, stable=True)[1][..., :count]


@pytest.mark.parametrize("precision", ["own", "float16"])
@pytest.mark.parametrize(
    "forward",
    [
        "x.topk(4)[1]",
        "x.topk(4)[1].int()",
        "x.argsort(descending=True)[:, :4]",
        "(-x).sort()[1][:, :4]",
        "torch.softmax(x, 1).topk(4)[1]",
    ],
)
def test_of_equals_any_may_come_first_but_each_once(forward: str, precision: str) -> None:
    x, wanted = _expected(forward, precision)
    places = _last_first(x, 4).to(getattr(torch, wanted.dtype))
    assert _undecided(wanted).any()
    assert (places != wanted.value).any()
    assert all_pass(places, wanted)
    twice = places.clone()
    twice[:, 1] = torch.where(x.gather(1, places.long()).diff()[:, 0] == 0, places[:, 0], places[:, 1])
    assert not all_pass(twice, wanted)
    beyond = torch.where(_undecided(wanted), 1_000_000, places)
    assert not all_pass(beyond, wanted)
    assert not all_pass(places.flip(-1), wanted)
    smaller = (-x).topk(4)[1].to(places.dtype)
    assert not all_pass(torch.where(_undecided(wanted), smaller, wanted.value), wanted)


def test_places_may_stand_in_columns() -> None:
    x, wanted = _expected("x.topk(4, dim=0)[1]")
    places = _last_first(x.T, 4).T
    assert all_pass(places, wanted)
    assert not all_pass(places.flip(0), wanted)
    assert not all_pass(places[[0, 0, 2, 3]], wanted)


def test_a_whole_sort_names_every_place() -> None:
    x, wanted = _expected("x.argsort(descending=True)")
    assert all_pass(_last_first(x, 30), wanted)
    ranks = (x[:, None, :] > x[:, :, None]).sum(-1)
    colliding = torch.zeros_like(wanted.value).scatter_(1, ranks, torch.arange(30).expand(40, 30))
    assert not all_pass(colliding, wanted)


def test_any_of_equals_is_the_median() -> None:
    x, wanted = _expected("x.median(1)[1]")
    middle = x.sort(1)[0][:, 14:15]
    assert _undecided(wanted).any()
    last = 29 - (x.flip(1) == middle).int().argmax(1)
    assert all_pass(last, wanted)
    other = (x != middle).int().argmax(1)
    assert not all_pass(torch.where(_undecided(wanted), other, wanted.value), wanted)


def test_what_places_are_made_into_is_of_their_kind() -> None:
    x, wanted = _expected("1000 + 2 * x.topk(4)[1]")
    assert all_pass(1000 + 2 * _last_first(x, 4), wanted)
    assert not all_pass(torch.where(_undecided(wanted), 1_000_000, wanted.value), wanted)


def test_a_quotient_beside_a_half_becomes_one_of_two_numbers() -> None:
    _, wanted = _expected("torch.round((x + 0.1) / 0.05 - 1.5).int()")
    assert _undecided(wanted).any()
    other = _expected("torch.floor((x + 0.1) / 0.05 - 1.5 + 0.5 + 1e-9).int()")[1].value
    below = _expected("torch.ceil((x + 0.1) / 0.05 - 1.5 - 0.5 - 1e-9).int()")[1].value
    assert (other != below).any()
    assert all_pass(other, wanted)
    assert all_pass(below, wanted)
    assert not all_pass(torch.where(_undecided(wanted), other + 1, other), wanted)


def test_what_a_module_makes_float32_by_name_strays_too() -> None:
    exact, wanted = _expected("torch.round((x.float() + 0.1) / 0.05 - 1.5).int()")
    assert _undecided(wanted).any()
    assert all_pass(torch.round((exact + 0.1) / 0.05 - 1.5 + 1e-9).int(), wanted)
    assert all_pass(torch.round((exact + 0.1) / 0.05 - 1.5 - 1e-9).int(), wanted)
    assert not all_pass(((exact + 0.1) / 0.05 - 1.5).int(), wanted)


def test_places_that_are_wrong_by_themselves_stay_so_beside_equals() -> None:
    x, wanted = _expected("torch.cat([x, torch.arange(30.0).expand(1, 30)]).topk(4)[1]")
    right = torch.cat([_last_first(x, 4), torch.tensor([[29, 28, 27, 26]])])
    assert all_pass(right, wanted)
    right[-1, -1] = 25
    assert not all_pass(right, wanted)
