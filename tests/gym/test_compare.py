"""Shape and type, then non-finite masks, then values within a tolerance that follows the output's size."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.gym.channel.poison import Poison
from kernel_core.gym.channel.pytree import fingerprint
from kernel_core.gym.numerics import compare
from kernel_core.gym.numerics.compare import Spots, all_pass, compare_outputs, compare_values, each_passes
from kernel_core.gym.numerics.error_model import allowed_error, allowed_table
from kernel_core.gym.numerics.expected import Expected, Rounding, Undecided


def _expected(value: torch.Tensor, dtype: str = "float32", allowance: torch.Tensor | float = 0.0) -> Expected:
    return Expected(dtype, tuple(value.shape), value, Rounding(allowance))


def test_an_output_of_another_size_does_not_pass() -> None:
    places = Expected("int64", (36,), torch.arange(36), Undecided(torch.zeros(36, dtype=torch.bool)))
    assert each_passes([torch.arange(36)], [places])
    assert not each_passes([torch.arange(38)], [places])


@pytest.mark.parametrize(
    ("got", "true", "passes"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0001, 2.0], [1.0, 2.0], True),
        ([1.001, 2.0], [1.0, 2.0], False),
        ([0.0, 0.0], [1e-5, 2e-5], False),
        ([0.0, 0.0], [0.0, 1e-7], True),
        ([float("nan"), 1.0], [1.0, 1.0], False),
        ([1.0, 1.0], [float("nan"), 1.0], False),
        ([float("nan"), 1.0], [float("nan"), 1.0], True),
        ([float("inf"), 1.0], [float("inf"), 1.0], True),
        ([float("-inf"), 1.0], [float("inf"), 1.0], False),
        ([float("inf"), 1.0], [3e38, 1.0], False),
    ],
)
def test_values_pass_within_tolerance(got: list[float], true: list[float], passes: bool) -> None:
    fault = compare_values(torch.tensor(got), _expected(torch.tensor(true, dtype=torch.float64)))
    assert (fault is None) == passes


def test_the_references_own_error_is_allowed_but_capped() -> None:
    true = torch.tensor([100.0, 0.0], dtype=torch.float64)
    got = torch.tensor([100.0, 0.02])
    assert compare_values(got, _expected(true)) is not None
    assert compare_values(got, _expected(true, allowance=0.04)) is None
    assert compare_values(torch.tensor([100.0, 5.0]), _expected(true, allowance=1e9)) is not None


def test_integers_are_exact_and_the_worst_index_is_named() -> None:
    true = torch.arange(6).reshape(2, 3)
    got = true.clone()
    assert compare_values(got, _expected(true, "int64")) is None
    got[1, 2] = 7
    assert (
        compare_values(got, _expected(true, "int64")) == "at [1, 2] is 7, expected 5; 17 % of values differ"
    )


def test_elements_that_were_never_written_are_named_so() -> None:
    true = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(4, 15)
    got, fresh = true.float(), torch.empty(4, 15)
    Poison(random.Random(1)).fill(fresh.reshape(-1).view(torch.uint8))
    got[:, 14] = fresh[:, 14]
    fault = compare_values(got, _expected(true))
    assert fault is not None and fault.endswith(
        "7 % of values differ, none of which was ever written, all in [:, 14:]"
    )
    got[2, 3] = 9.0
    fault = compare_values(got, _expected(true))
    assert fault is not None and "written" not in fault, "one of them was"


def test_integers_that_nothing_decides_may_be_any() -> None:
    true = torch.tensor([3, 5, 7])
    wanted = Expected("int64", (3,), true, Undecided(torch.tensor([False, True, False])))
    assert compare_values(torch.tensor([3, 9, 7]), wanted) is None
    assert Spots.of(wanted).all_pass(torch.tensor([3, 9, 7]))
    assert compare_values(torch.tensor([3, 5, 8]), wanted) is not None


def test_the_rounding_of_huge_values_does_not_excuse_small_ones() -> None:
    true = torch.tensor([1e10, 2e10, 1.0, 1.0], dtype=torch.float64)
    plain = true.float().double() + torch.tensor([900.0, 0.0, 0.0, 1e-7])
    table = allowed_table(plain, None, true)
    assert allowed_error(table, true).tolist() == pytest.approx([3600.0, 3600.0, 4e-7, 4e-7])
    assert compare_values(torch.tensor([1e10, 2e10, 1.0, 1.0]), _expected(true, allowance=table)) is None
    assert compare_values(torch.tensor([1e10, 2e10, 0.0, 1.0]), _expected(true, allowance=table))


@pytest.mark.parametrize(
    ("nesting", "leaves", "words"),
    [
        ("*", [["tensor", "float32", [3]]], "nested"),
        (["*"], [["tensor", "float32", [4]]], "has shape [4], expected [3]"),
        (["*"], [["tensor", "float16", [3]]], "has dtype float16, expected float32"),
        (["*"], [["other", "NoneType"]], "is a NoneType, expected a tensor"),
        (["*"], [["tensor", "float32"]], "cannot be read"),
        (["*"], [["tensor", 5, "x"]], "cannot be read"),
        (["*"], [], "there are 0 outputs, expected 1"),
    ],
)
def test_form_comes_before_values(nesting: object, leaves: list[object], words: str) -> None:
    expected = [_expected(torch.zeros(3, dtype=torch.float64))]
    fault = compare_outputs(nesting, leaves, [torch.zeros(3)], ["*"], expected)
    assert fault is not None
    assert words in fault


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]))
def test_a_single_wrong_element_is_found_at_any_scale(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(257, generator=generator, dtype=torch.float64) * scale
    got = true.float()
    assert compare_values(got, _expected(true)) is None
    position = seed % 257
    got[position] += 0.01 * scale + 1e-5
    fault = compare_values(got, _expected(true))
    assert fault is not None
    assert fault.startswith(f"at [{position}] ")


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.floats(width=32)), max_size=3),
)
def test_who_asks_only_whether_all_pass_is_told_the_same(
    numbers: list[float], changes: list[tuple[int, float]]
) -> None:
    true = torch.tensor(numbers)
    got = true.clone()
    for place, number in changes:
        got[place % len(numbers)] = number
    assert all_pass(got, _expected(true)) == (compare_values(got, _expected(true)) is None)


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.floats(width=32)), max_size=3),
    st.integers(1, 400),
    st.booleans(),
)
def test_what_fails_at_a_few_places_fails_as_a_whole(
    numbers: list[float], changes: list[tuple[int, float]], times: int, loose: bool
) -> None:
    true = torch.tensor(numbers).repeat(times)
    got = true.clone()
    for place, number in changes:
        got[place % len(numbers) :: len(numbers)] = number
    wanted = _expected(true, allowance=1e-3).allowing(loose=torch.full_like(true, loose).bool())
    spots = Spots.of(wanted)
    assert spots.all_pass(got) or not all_pass(got, wanted)
    if len(spots.places) == len(true):
        assert spots.all_pass(got) == all_pass(got, wanted)


def test_few_places_tell_of_a_part_that_is_wrong_and_of_what_is_far_off() -> None:
    true = torch.randn(1 << 20)
    spots = Spots.of(_expected(true))
    assert spots.all_pass(true)
    assert not spots.are_far(true)
    stale = true.clone()
    stale[: len(stale) // 50] = float("nan")
    assert not spots.all_pass(stale)
    assert not spots.are_far(stale)
    assert spots.are_far(-true)
    assert spots.are_far(torch.full_like(true, float("nan")))
    assert not spots.are_far(true * 1.1)
    few = torch.randn(100)
    assert not Spots.of(_expected(few)).are_far(-few)


def test_of_huge_outputs_that_fail_the_rest_is_looked_at_here_and_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare, "_EXACT_CHUNK", 10)
    true = torch.zeros(10_000)
    got = true.clone()
    assert compare_values(got, _expected(true)) is None
    got[7_003] = 2.0
    assert compare_values(got, _expected(true)) == ("at [7003] is 2, expected 0; <1 % of values differ")
    got[5::10] = 1.0
    assert "; 10 % of values differ" in str(compare_values(got, _expected(true)))


@given(st.integers(1, 9000), st.data())
@settings(max_examples=50)
def test_a_fingerprint_tells_whether_anything_was_written(size: int, data: st.DataObject) -> None:
    tensor = torch.randint(-100, 100, (size * 8,), dtype=torch.int32)
    before = fingerprint(tensor)
    first, second = (data.draw(st.integers(0, tensor.numel() - 1)) for _ in range(2))
    changed = tensor.clone()
    changed[first], changed[second] = tensor[second].clone(), tensor[first].clone()
    same = all(torch.equal(a, b) for a, b in zip(before, fingerprint(changed), strict=True))
    assert same == torch.equal(changed, tensor)
    tensor[first] += 1
    assert not all(torch.equal(a, b) for a, b in zip(before, fingerprint(tensor), strict=True))


def test_complex_numbers_and_8_bit_floats_have_a_tolerance() -> None:
    wave = torch.randn(9, 50, dtype=torch.complex64)
    expected = Expected("complex64", (9, 50), wave.to(torch.complex128))
    assert compare_values(wave * (1 + 1e-5), expected) is None
    assert compare_values(wave.conj(), expected) is not None
    small = torch.linspace(1, 2, 64).to(torch.float8_e4m3fn)
    expected = Expected("float8_e4m3fn", (64,), small.float())
    assert compare_values((small.float() * 1.07).to(torch.float8_e4m3fn), expected) is None
    assert compare_values((small.float() * 1.5).to(torch.float8_e4m3fn), expected) is not None
    powers = torch.exp2(torch.arange(-9.0, 9.0))
    expected = Expected("float8_e8m0fnu", (18,), powers)
    for factor, is_right in ((1, True), (0.5, False), (2, False)):
        fault = compare_values((factor * powers).to(torch.float8_e8m0fnu), expected)
        assert (fault is None) is is_right


def test_a_fault_tells_where_it_is_and_by_what_factor() -> None:
    true = torch.arange(1.0, 41.0).reshape(8, 5)
    got = true.clone()
    got[3:, 1:4] *= 2
    fault = str(compare_values(got, _expected(true)))
    assert fault.endswith("; 38 % of values differ, each is 2 times what is expected, all in [3:, 1:4]")
    got[3, 1] = 5.0
    assert "times" not in str(compare_values(got, _expected(true)))
    assert str(compare_values(true + 1.0, _expected(true))).endswith("; 100 % of values differ")
