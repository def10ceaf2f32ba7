"""What is allowed beyond the tolerance: errors of honest arithmetic, TF32's too on a GPU, but not half's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernel_core.gym.numerics import error_model
from kernel_core.gym.numerics.compare import compare_values, each_passes
from kernel_core.gym.numerics.error_model import (
    ProductsSeen,
    ShortenedProducts,
    allowed_error,
    allowed_table,
    error_by_size,
    truncated,
    with_room,
)
from kernel_core.gym.numerics.expected import Expected, Rounding
from kernel_core.gym.oracle.input_families import Draw
from kernel_core.gym.oracle.input_generators import redraw
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import outline
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem

MANTISSA_BITS = {"tf32": 10, "bfloat16": 7}


def _rounded(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Values with a mantissa of so many bits, rounded to nearest."""
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp((mantissa * 2 ** (bits + 1)).round() / 2 ** (bits + 1), exponent)


def _cut_off(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Values with a mantissa of so many bits, rounded towards zero."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2 ** (bits + 1)).trunc() / 2 ** (bits + 1), exponent)


def _product(precision: str) -> torch.Tensor:
    left = torch.randn(48, 256, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    right = torch.randn(256, 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    if precision == "fp32":
        return (left.float() @ right.float()).double()
    if precision == "exact":
        return left @ right
    return _rounded(left, MANTISSA_BITS[precision]) @ _rounded(right, MANTISSA_BITS[precision])


@pytest.mark.parametrize(
    ("precision", "tf32_allowed", "passes"),
    [
        ("fp32", False, True),
        ("fp32", True, True),
        ("tf32", False, False),
        ("tf32", True, True),
        ("bfloat16", False, False),
        ("bfloat16", True, False),
    ],
)
def test_products_may_be_as_exact_as_the_policy_says(
    precision: str, tf32_allowed: bool, passes: bool
) -> None:
    exact = _product("exact")
    table = allowed_table(_product("fp32"), _product("tf32") if tf32_allowed else None, exact)
    expected = Expected("float32", tuple(exact.shape), exact, Rounding(table))
    assert (compare_values(_product(precision).float(), expected) is None) == passes


@pytest.mark.parametrize(("draw", "by_another"), [("normal", True), ("normal", False), ("mixed", False)])
def test_what_a_draw_allows_suffices_for_honest_products(draw: Draw, by_another: bool) -> None:
    """A few sums cancel almost, and are smaller than any of the draw whose errors were measured."""

    def products(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        left, right = redraw([torch.rand(256, 512), torch.rand(512, 256)], draw)
        parts = (left[:, start::3] @ right[start::3] for start in range(3))
        return {
            "plain": left @ right,
            "split": sum(parts, torch.zeros(256, 256)),
            "tf32": (_rounded(left, 10) @ _rounded(right, 10)).float(),
            "exact": left.double() @ right.double(),
        }

    for seed in range(1, 25):
        other = products(seed)
        known = products(0) if by_another else other
        table = allowed_table(known["plain"], known["tf32"], known["exact"])
        expected = (
            Expected("float32", (256, 256), other["plain"], Rounding(1.25 * table))
            if by_another
            else Expected("float32", (256, 256), other["exact"], Rounding(table))
        )
        assert compare_values(other["split"], expected) is None
        assert compare_values(other["tf32"], expected) is None


def test_errors_are_looked_up_by_size() -> None:
    exact = torch.tensor([1.0, 1000.0], dtype=torch.float64)
    table = error_by_size(exact + torch.tensor([1e-7, 0.5]), exact)
    assert allowed_error(table, exact).tolist() == pytest.approx([1e-7, 0.5])
    assert allowed_error(0.25, exact).item() == 0.25


def test_every_element_counts_and_rare_sizes_may_err_as_larger_ones_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(error_model, "_CHUNK", 1 << 16)  # four parts
    exact = torch.ones(1 << 18)
    exact[:40], exact[40:4400] = 2.0**-30, 2.0**-20
    errors = torch.full_like(exact, 1e-5)
    errors[1], errors[4399] = 1e-4, 9e-4
    table = error_by_size(exact + errors, exact)
    assert allowed_error(table, exact)[0].item() == pytest.approx(9e-4, rel=0.01)
    assert allowed_error(table, exact)[-1].item() == pytest.approx(1e-5, rel=0.02)


@pytest.mark.exhaustive
def test_an_activation_with_a_bend_allows_honest_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near zero the slope changes by a hundred, and a TF32 product may end on the other side. Of 40 such
    outputs 4 were refused where each size had errors of its own alone."""
    monkeypatch.setattr(error_model, "_CHUNK", 1 << 16)
    generator = torch.Generator().manual_seed(1)
    refused = 0
    for _ in range(8):
        exact = torch.randn(1 << 20, generator=generator) / 3
        scale = torch.randn(64, generator=generator).repeat_interleave(exact.numel() // 64)
        outputs = [
            torch.nn.functional.gelu(torch.nn.functional.leaky_relu(value * scale))
            for value in (
                exact,
                *(
                    exact + error * torch.randn(exact.numel(), generator=generator)
                    for error in (1e-8, 1.5e-4, 1.5e-4)
                ),
            )
        ]
        true, plain, tf32, honest = outputs
        expected = Expected("float32", tuple(true.shape), true, Rounding(allowed_table(plain, tf32, true)))
        refused += compare_values(honest, expected) is not None
    assert refused == 0


@pytest.mark.parametrize("draw", ["own", "normal"])
def test_a_cheaper_trial_has_the_same_inputs_and_nearly_the_same_expectations(
    problems: dict[str, Problem], draw: Draw
) -> None:
    reference = Reference(problems["linear_gelu"], problems["linear_gelu"].cpu_constants)
    known, exact = reference.trial(1, draw), reference.trial(2, draw)
    cheap = reference.trial_like(known, 2)
    assert all(torch.equal(one, other) for one, other in zip(cheap.inputs, exact.inputs, strict=True))
    [mine], [first], [true] = cheap.expected, known.expected, exact.expected
    assert compare_values(true.value.float(), mine) is None
    assert compare_values(first.value.float(), mine) is not None
    assert isinstance(mine.tolerance, Rounding) and isinstance(first.tolerance, Rounding)
    assert isinstance(mine.tolerance.by_size, torch.Tensor)
    assert (mine.tolerance.by_size >= first.tolerance.by_size).all()


@pytest.mark.parametrize("draw", ["own", "normal"])
def test_what_is_expected_and_was_not_kept_is_made_again(problems: dict[str, Problem], draw: Draw) -> None:
    reference = Reference(problems["linear_gelu"], problems["linear_gelu"].cpu_constants)
    kept = reference.trial(3, draw)
    assert kept.has_values and reference.with_values(kept) is kept
    blank = replace(outline(kept), inputs=[])
    assert not blank.has_values
    [again], [known] = reference.with_values(blank).expected, kept.expected
    assert compare_values(known.value.float(), again) is None
    other = replace(blank, seed=4)
    [another] = reference.with_values(other).expected
    assert compare_values(known.value.float(), another) is not None


OWN_BUFFER = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(8))

    def forward(self, x):
        return self.kept.copy_(x * 2)


def get_inputs():
    return [torch.rand(8)]


def get_init_inputs():
    return []
"""


def test_what_is_expected_stays_when_the_reference_writes_to_what_it_gave() -> None:
    reference = Reference(parse_problem(OWN_BUFFER, id="kept", suite="test"), {})
    first = reference.trial(1, "own", exact=False)
    known = first.expected[0].value.clone()
    second = reference.trial_like(first, 2)
    assert torch.equal(first.expected[0].value, known)
    assert not torch.equal(second.expected[0].value, known)


@pytest.mark.parametrize(
    ("layer", "are_there"),
    [
        (torch.nn.GELU(), False),
        (torch.nn.LayerNorm(8), False),
        (torch.nn.MaxPool1d(2), False),
        (torch.nn.Linear(8, 4), True),
        (torch.nn.Conv1d(5, 5, 3), True),
        (torch.nn.GRU(8, 4), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_products_are_seen_in_one_pass(layer: torch.nn.Module, are_there: bool) -> None:
    with torch.no_grad(), ProductsSeen() as seen:
        layer(torch.rand(5, 5, 8))
    assert seen.are_there is are_there


def test_products_of_any_size_lose_what_tf32_has_no_bits_for() -> None:
    left, right = torch.rand(3, 5), torch.rand(5, 2)
    cut_left, cut_right = _cut_off(left, 10), _cut_off(right, 10)
    with ShortenedProducts(truncated):
        product, total = left @ right, left + 1
    assert torch.equal(product, cut_left @ cut_right)
    assert not torch.equal(product, left @ right)
    assert torch.equal(total, left + 1)


@pytest.mark.parametrize(("error", "has_room"), [(0.006, True), (0.009, False)])
def test_inputs_are_no_test_where_tf32_comes_near_what_is_allowed(error: float, has_room: bool) -> None:
    plain = torch.full((1000,), 2.0)
    tf32 = torch.where(torch.arange(1000) == 7, plain * (1 + error), plain)
    expected = [Expected("float32", (1000,), plain.double(), Rounding(1.0))]  # the most by size decides
    assert each_passes([tf32], expected)
    assert each_passes(with_room([tf32], [plain]), expected) == has_room


def test_more_room_leaves_infinities_and_whole_numbers() -> None:
    infinite, whole = torch.tensor([torch.inf, 1.0, -torch.inf]), torch.tensor([1, 2])
    found = with_room([infinite, whole, torch.tensor([1.0])], [infinite, whole, torch.tensor([torch.nan])])
    assert [one.tolist() for one in found] == [infinite.tolist(), whole.tolist(), [1.0]]


_COLUMNS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.sum(0)

def get_inputs():
    return [torch.randn(8192, 256)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("draw", ["own", "mixed", "wide"])
def test_a_sum_may_be_added_one_after_another_but_not_of_shorter_terms(draw: Draw) -> None:
    reference = Reference(parse_problem(_COLUMNS, id="test/columns", suite="test"), {})
    for seed in range(3):
        trial = reference.trial(seed, draw)
        (terms,) = trial.inputs
        in_sequence = torch.zeros(256)
        for row in terms:
            in_sequence += row
        assert compare_values(in_sequence, trial.expected[0]) is None
        assert compare_values(truncated(terms).sum(0), trial.expected[0]) is not None
        assert compare_values(terms[1:].sum(0), trial.expected[0]) is not None
