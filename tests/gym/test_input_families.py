"""Hostile inputs keep what a problem's own draws have in common, and are found for each tensor."""

from __future__ import annotations

import pytest
import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.oracle.input_families import HOSTILE, families_of, hostile_draw, turned, without_zeros
from kernel_core.gym.oracle.input_generators import look_at_all, redraw
from kernel_core.gym.oracle.input_invariants import in_common
from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.source import parse_problem

_SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y):
        return FORWARD


def get_inputs():
    return [INPUTS]


def get_init_inputs():
    return []
"""
_POSITIVE = "torch.rand(9, 500).mul(0.9).add(0.1)"


def _reference(forward: str, inputs: str, said: str = "") -> Reference:
    source = said + _SOURCE.replace("FORWARD", forward).replace("INPUTS", inputs)
    return Reference(parse_problem(source, id="test/inline", suite="test"), {})


def _found(reference: Reference) -> str | None:
    def takes(draw: str) -> bool:
        try:
            return reference.trial(5, draw).is_usual
        except NotAProblem:
            return False

    return hostile_draw(takes, HOSTILE, lambda: reference.num_floating)


@pytest.mark.parametrize(
    ("forward", "draw"),
    [
        ("torch.relu(x) + y", "mixed"),
        ("torch.relu(x) / torch.sqrt(y)", "mixed, positive"),
        ("torch.relu(x) * torch.sqrt(y)", "mixed, positive_with_zeros"),
        ("torch.exp(x) * torch.log1p(y)", "moderate, over_minus_one"),
        ("torch.log(x + y)", "positive_with_zeros, positive"),
        ("F.binary_cross_entropy(y / y.clamp(max=1.0).amax(), torch.sigmoid(x))", "mixed, unit"),
        ("torch.log(x.amin() - 0.1) + torch.log(y.amin() - 0.1) + x - x.amax() * 1e30", None),
    ],
)
def test_each_tensor_gets_the_first_family_that_the_reference_takes(forward: str, draw: str | None) -> None:
    any_size = "# input x: any\n# input y: any\n"
    assert _found(_reference(forward, f"{_POSITIVE}, {_POSITIVE}", any_size)) == draw


def test_a_draw_of_several_families_is_each_tensors_own() -> None:
    torch.manual_seed(3)
    given = [torch.rand(9, 50), torch.arange(3), (torch.rand(9, 50), torch.rand(9, 50))]
    own = given[2][1].clone()
    first, labels, (second, third) = redraw(given, "mixed, positive, own")
    assert (first < 0).any() and (second > 0).all() and torch.equal(third, own)
    assert labels.tolist() == [0, 1, 2]
    assert turned("mixed, positive") == "turned, positive"
    assert without_zeros("turned, positive") == "turned_nonzero, positive"
    assert [next(families_of("mixed")) for _ in range(3)] == ["mixed"] * 3


_KEPT = {
    "torch.randn(50).sort()[0]": "is_rising",
    "torch.rand(9, 50).cumsum(1)": "is_rising",
    "(torch.rand(9, 50) > 0.3).float()": "as_drawn",
    "torch.randint(0, 2, (9, 1)).float() * 2 - 1": "as_drawn",
    "torch.full((9, 9), float('-inf')).triu(1)": "as_drawn",
    "torch.rand(9, 50).softmax(1)": "sums_to_one",
    "torch.rand(9, 50).half().softmax(1)": "sums_to_one",
    "torch.randn(9, 50).log_softmax(1)": "logs_sum_to_one",
    "torch.randn(9, 25).cos().repeat(1, 2)": "halves_repeat",
}


@pytest.mark.parametrize(("inputs", "what"), _KEPT.items())
def test_what_own_draws_have_in_common_is_kept(inputs: str, what: str) -> None:
    reference = _reference("x + y", f"{inputs}, torch.rand(9, 50)")
    for draw in ("mixed", "turned", "far_negative", "positive", "normal"):
        drawn, other = (reference.draw(seed, draw) for seed in (1, 2))
        [kept, free] = map(in_common, zip(look_at_all(drawn), look_at_all(other), strict=True))
        assert getattr(kept, what), draw
        assert not any(getattr(free, name) for name in ("zeros", "as_drawn", "is_rising", "sums_to_one"))


@pytest.mark.parametrize("draw", ["mixed", "turned", "far_negative", "positive"])
@pytest.mark.parametrize("scale", ["torch.rand(9, 50) + 0.5", "torch.rand(1) + 0.5"])
def test_what_stays_away_from_zero_keeps_its_sign_and_size(scale: str, draw: str) -> None:
    drawn, free = _reference("x * y", f"{scale}, torch.randn(9, 50)").draw(1, draw)
    assert drawn.min() >= 0.5 / 5 and drawn.max() <= 1.5 * 5
    assert draw == "positive" or (free < 0).any()


def test_a_problem_says_what_its_inputs_are() -> None:
    said = "# input x: probabilities\n# input y: as drawn\n"
    reference = _reference("x * y", "torch.rand(9, 50), torch.rand(9, 50)", said)
    shares, own = reference.draw(1, "mixed")
    assert torch.allclose(shares.sum(1), torch.ones(9)) and torch.equal(own, reference.draw(1, "own")[1])
    with pytest.raises(NotAProblem, match="cannot be declared 'huge'"):
        _reference("x", "torch.rand(9, 50)", "# input x: huge\n").draw(1, "mixed")


def test_a_few_chance_zeros_do_not_hide_a_triangle() -> None:
    inputs = "torch.tril((torch.rand(9, 50) > 0.02) * torch.rand(9, 50)), torch.rand(9, 50)"
    drawn, _ = _reference("x + y", inputs).draw(1, "mixed")
    assert torch.equal(drawn, drawn.tril())


@pytest.mark.parametrize("draw", ["mixed", "turned", "far_negative", "positive"])
def test_what_is_always_zero_stays_zero(draw: str) -> None:
    drawn, _ = _reference("x + y", "torch.tril(torch.rand(9, 9)), torch.rand(9, 50)").draw(1, draw)
    assert torch.equal(drawn, drawn.tril())
    assert (drawn != 0).sum() > 20


@pytest.mark.parametrize(
    "inputs",
    [
        "torch.zeros(9, 50)",
        "torch.ones(9, 50)",
        "torch.relu(torch.randn(9, 50) + 1)",
        "torch.rand(9, 50).half()",
    ],
)
def test_constants_and_what_chance_gave_are_not(inputs: str) -> None:
    drawn, _ = _reference("x + y", f"{inputs}, torch.rand(9, 50)").draw(1, "normal")
    assert (drawn > 0).any() and (drawn < 0).any() and (drawn != 0).all()


def test_a_sparse_input_stays_sparse_where_its_own_draw_is() -> None:
    reference = _reference("x + y", "torch.relu(torch.randn(9, 50)), torch.rand(9, 50)")
    drawn, own = (reference.draw(1, draw)[0] for draw in ("normal", "own"))
    assert torch.equal(drawn == 0, own == 0)
    assert (drawn > 0).any() and (drawn < 0).any()


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((5, 7, 19), {1, 2}), ((5, 6, 4, 9), {1, 2, 3}), ((9, 30), {1}), ((2, 6, 5, 7), {2, 3}), ((1, 9), {1})],
)
def test_turned_inputs_have_whole_slices_of_any_dimension_but_the_first(
    shape: tuple[int, ...], dims: set[int]
) -> None:
    found = set()
    for seed in range(60):
        torch.manual_seed(seed)
        values = redraw([torch.rand(shape)], "turned")[0]
        for dim in range(len(shape)):
            others = [other for other in range(len(shape)) if other != dim]
            if (values.amax(others) < 0).any():
                found.add(dim)
                assert (values.amin(others) > 0).any()
                assert shape[dim] == 4 or (values.abs().amax(others) == 0).any()
    assert found == dims


@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 5, 7), 3), ((2, 32, 20), 4), ((1, 64, 9), 8)])
def test_groups_of_channels_have_whole_slices_where_the_batch_is_small(
    shape: tuple[int, ...], groups: int
) -> None:
    found = 0
    for seed in range(40):
        torch.manual_seed(seed)
        values = redraw([torch.rand(shape)], "turned")[0].reshape(shape[0] * groups, -1)
        if (values == 0).all(1).any():
            found += 1
            assert (values < 0).all(1).any() and (values > 0).all(1).any()
    assert 20 < found < 40


@pytest.mark.parametrize("draw", ["mixed", "turned"])
def test_two_tensors_are_zero_together_and_equal_somewhere(draw: str) -> None:
    torch.manual_seed(3)
    first, second, longer = redraw([torch.rand(9, 33), torch.rand(9, 33), torch.rand(14, 33)], draw)
    first, second = (one if draw == "mixed" else one.T for one in (first, second))
    zero, same = (first == 0).all(1), (first == second).all(1)
    assert zero.sum() == 1 and torch.equal(zero, (second == 0).all(1))
    assert same.sum() == 2
    if draw == "mixed":
        assert (longer[:, None] == first[same & ~zero]).all(-1).sum() == 1


def test_without_zeros_nothing_else_differs() -> None:
    def drawn(draw: str) -> list[torch.Tensor]:
        torch.manual_seed(3)
        return redraw([torch.rand(9, 33), torch.rand(9, 33)], draw)

    for draw in ("mixed", "moderate", "turned", "turned_moderate"):
        differ = [one != other for one, other in zip(drawn(draw), drawn(without_zeros(draw)), strict=True)]
        differ = differ if draw.startswith("m") else [one.T for one in differ]
        assert [int(one.all(1).sum()) for one in differ] == [1, 2]
        assert [int(one.any(1).sum()) for one in differ] == [1, 2]


def test_smooth_inputs_have_neither_zeros_nor_ties() -> None:
    torch.manual_seed(3)
    for draw in ("smooth", "turned_smooth", "moderate_smooth"):
        [values] = redraw([torch.rand(16, 50)], draw)
        assert len(values.unique()) > 0.99 * values.numel() and (values != 0).all(), draw
