"""What nothing decides is not anything: it is what the reference gives when its results stray."""

from __future__ import annotations

import pytest
import torch
from exploit_files import PROBLEMS

from kernel_core.gym.numerics import random_rounding
from kernel_core.gym.numerics.ambiguous_integers import look_for_undecided
from kernel_core.gym.numerics.compare import all_pass
from kernel_core.gym.numerics.error_model import truncated
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


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_of_many_whole_numbers_none_is_refused_for_one_more_rounding(half: str) -> None:
    source = PROBLEMS["turned_to_int8"].source.replace(".half()", f".to(torch.{half})")
    reference = Reference(parse_problem(source, id="test/many", suite="test"), {})
    for seed in range(3):
        trial = reference.trial(seed, "own")
        [wanted], (x, turn) = trial.expected, trial.inputs
        y = (x.float() @ turn.float()).to(x.dtype).float() @ turn.float()
        quotients = y * 127 / y.abs().amax(-1, keepdim=True)
        assert all_pass(quotients.round().to(torch.int8), wanted)
        assert not all_pass(quotients.trunc().to(torch.int8), wanted)
        assert not all_pass((quotients / 1.03).round().to(torch.int8), wanted)


def test_a_whole_quotient_may_lie_below_unless_a_power_of_two_divides() -> None:
    """A GPU multiplies by a reciprocal."""
    for eighths in ("8 * x", "8 * x.float()"):
        x, wanted = _expected(f"torch.floor({eighths} / 7).int()")
        below = wanted.value - ((8 * x % 7 == 0) & (x > 0)).int()
        assert (below != wanted.value).any()
        assert all_pass(below, wanted)
        assert not all_pass(wanted.value - 1, wanted)
        assert not _undecided(_expected(f"torch.floor({eighths} / 4).int()")[1]).any()


def test_numbers_whose_bits_are_read_stray_too() -> None:
    """They stay float32, since their bits are not those of float64."""
    bits = "torch.zeros(30, dtype=torch.int32) * (8 * x.float()).view(torch.int32)"
    x, wanted = _expected(f"torch.floor(8 * x.float() / 7).int() + {bits}")
    below = wanted.value - ((8 * x % 7 == 0) & (x > 0)).int()
    assert all_pass(below, wanted)
    assert not all_pass(wanted.value - 1, wanted)


def test_the_nearest_may_be_found_by_products_in_tf32() -> None:
    source = _SOURCE.replace("self, x", "self, x, y").replace("FORWARD", "torch.cdist(x, y).argmin(-1)")
    drawn = "return [torch.randn(4000, 64), torch.randn(100, 64)]"
    source = source.replace("return [torch.randint(0, 9, (40, 30)) / 8]", drawn)
    problem = parse_problem(source, id="test/inline", suite="test")
    trial = Reference(problem, {}, tf32=True).trial(3, "negative")
    x, y = trial.inputs
    [wanted] = trial.expected
    distances = (x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * truncated(x) @ truncated(y).T
    assert (distances.argmin(-1) != wanted.value).any()
    assert all_pass(distances.argmin(-1), wanted)
    assert not all_pass(distances.topk(2, largest=False)[1][:, 1], wanted)
    assert not all_pass((truncated(x) @ truncated(y).T).argmax(-1), wanted)


def test_places_that_are_wrong_by_themselves_stay_so_beside_equals() -> None:
    x, wanted = _expected("torch.cat([x, torch.arange(30.0).expand(1, 30)]).topk(4)[1]")
    right = torch.cat([_last_first(x, 4), torch.tensor([[29, 28, 27, 26]])])
    assert all_pass(right, wanted)
    right[-1, -1] = 25
    assert not all_pass(right, wanted)


@pytest.mark.parametrize(("steps", "passes"), [(1, 25), (400, 9), (3_000, 3)])
def test_a_reference_of_many_steps_is_asked_less_often(
    steps: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_rounding, "_MOST_OPERATORS", 4_000)
    calls = 0

    def forward(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        nonlocal calls
        calls += 1
        x = inputs[0]
        for _ in range(steps):
            x = x * 0.99
        return [(1000 * x).to(torch.int32)]

    x = [torch.rand(8, dtype=torch.float64)]
    plain = forward(x)
    calls = 0
    look_for_undecided([torch.zeros(8, dtype=torch.bool)], forward, forward, x, plain, 1, tf32=False)
    assert calls == passes
