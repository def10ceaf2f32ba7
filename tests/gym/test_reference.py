"""What the judge itself makes of a problem: draws from many threads, and large trials."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernel_core.gym import reference as references
from kernel_core.gym.compare import all_pass
from kernel_core.gym.draws import DRAWS, Draw
from kernel_core.gym.reference import Reference
from kernel_core.problems.source import parse_problem

_SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return FORWARD


def get_inputs():
    return [torch.rand(64, 300)]


def get_init_inputs():
    return []
"""


def _reference(forward: str) -> Reference:
    problem = parse_problem(_SOURCE.replace("FORWARD", forward), id="test/inline", suite="test")
    return Reference(problem, {})


def test_threads_that_draw_at_once_draw_what_each_would_alone() -> None:
    ours = [_reference("x.sum(1)"), _reference("x * 2")]
    jobs: list[tuple[int, Draw]] = [(seed, draw) for seed in range(40) for draw in DRAWS]
    alone = [ours[seed % 2].draw(seed, draw)[0] for seed, draw in jobs]
    state = torch.random.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda job: ours[job[0] % 2].draw(*job)[0], jobs))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("forward", "is_measured"),
    [("x.sum(1)", True), ("torch.softmax(x, 1)", True), ("torch.softmax(x, 0)", False), ("x.sum()", False)],
)
def test_a_large_trial_allows_what_its_first_rows_need(
    forward: str, is_measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = _reference(forward)
    [exact] = ours.trial(5, "mixed").expected
    monkeypatch.setattr(references, "_LARGE_BYTES", 1000)
    [large] = ours.trial(5, "mixed").expected
    assert isinstance(large.allowance, torch.Tensor) == is_measured
    if isinstance(large.allowance, torch.Tensor) and isinstance(exact.allowance, torch.Tensor):
        assert 0 < float(large.allowance.max()) <= float(exact.allowance.max())
    assert torch.allclose(large.value.double(), exact.value.double(), 1e-4, 1e-4)
    assert large.value.shape == exact.value.shape


def test_places_in_a_sort_are_decided_but_among_equals() -> None:
    source = _SOURCE.replace("FORWARD", "torch.sort(torch.softmax(x, 1), 1)").replace(
        "torch.rand(64, 300)", "torch.rand(64, 300).round(decimals=2)"
    )
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    values, places = ours.trial(3, "own").expected
    assert values.undecided is None
    assert places.undecided is not None
    equal = torch.zeros_like(places.undecided)
    same = values.value[:, 1:] == values.value[:, :-1]
    equal[:, 1:] |= same
    equal[:, :-1] |= same
    assert (equal & places.undecided).sum() > 0.95 * equal.sum() > 0
    assert (places.undecided & ~equal).sum() < 0.01 * equal.numel()


def test_the_largest_of_many_numbers_is_decided() -> None:
    [place] = _reference("x.argmax(1)").trial(3, "own").expected
    assert place.undecided is not None
    assert not place.undecided.any()


def test_that_an_input_in_a_tuple_is_written_to_is_seen() -> None:
    source = _SOURCE.replace("FORWARD", "x[0].add_(x[1])").replace(
        "[torch.rand(64, 300)]", "[(torch.rand(4), torch.rand(4))]"
    )
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    assert ours.trial(3, "own").changes_inputs


def test_half_precision_may_be_rounded_once_more_on_the_way() -> None:
    source = _SOURCE.replace("forward(self, x)", "forward(self, q, k)").replace(
        "FORWARD", "torch.softmax((q.float() / 3) @ k.float().T, 1)"
    )
    source = source.replace("[torch.rand(64, 300)]", "[torch.randn(32, 20).bfloat16() for _ in range(2)]")
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    trial = ours.trial(3, "mixed")
    [strict], [kind] = trial.expected, ours.blurred(trial).expected
    q, k = trial.inputs
    rounded = torch.softmax((q / 3).float() @ k.float().T, 1)
    assert not all_pass(rounded, strict)
    assert all_pass(rounded, kind)
    assert not all_pass(torch.full_like(rounded, 1 / 32), kind)
    assert not all_pass(torch.softmax((q / 2).float() @ k.float().T, 1), kind)


def test_single_precision_may_not() -> None:
    ours = _reference("torch.softmax(x, 1)")
    trial = ours.trial(3, "mixed")
    assert ours.blurred(trial) is trial
