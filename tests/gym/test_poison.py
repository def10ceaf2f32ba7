"""Fresh memory holds what cannot be known beforehand, and is right for no answer."""

from __future__ import annotations

import random

import pytest
import torch

from kernel_core.gym.channel.poison import Poison, is_poison

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _filled(poison: Poison, num_bytes: int) -> torch.Tensor:
    raw = torch.zeros(num_bytes, dtype=torch.uint8)
    poison.fill(raw)
    return raw


@pytest.mark.parametrize(("num_bytes", "share"), [(8, 1.0), (1 << 10, 0.5)])
def test_a_storage_holds_nans_in_one_of_three_passes(num_bytes: int, share: float) -> None:
    poison, shares = Poison(), []
    for _ in range(6):
        poison.begin()
        raw = _filled(poison, num_bytes)
        of_types = {float(raw.view(dtype).isnan().double().mean()) for dtype in _FLOATS}
        assert len(of_types) == 1
        shares += of_types
    assert sorted(shares[:3]) == [0.0, 0.0, share]
    assert shares[:3] == shares[3:]


@pytest.mark.parametrize("dtype", _FLOATS)
def test_ordinary_numbers_are_neutral_in_nothing_and_have_either_sign(dtype: torch.dtype) -> None:
    poison = Poison()
    for _ in range(3):
        poison.begin()
        values = _filled(poison, 1 << 12).view(dtype)
        if not bool(values.isnan().any()):
            assert bool((values.abs() >= 2).all())
            assert bool((values > 0).any()) and bool((values < 0).any())


@pytest.mark.parametrize(("num_bytes", "start"), [(1, 0), (7, 0), (8, 3), (21, 5), (21, 9), (4, 4), (0, 0)])
def test_every_byte_from_the_start_is_poisoned_and_none_before(num_bytes: int, start: int) -> None:
    raw = torch.zeros(num_bytes, dtype=torch.uint8)
    Poison().fill(raw, start)
    assert not bool(raw[:start].any())
    assert bool((raw[start:] > 1).all())


def test_nothing_is_drawn_twice_nor_from_the_generators_of_torch() -> None:
    before = torch.get_rng_state()
    first, second = _filled(Poison(), 1 << 10), _filled(Poison(), 1 << 10)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_pass_may_hold_what_the_one_before_held() -> None:
    poison = Poison()
    for _ in range(4):
        poison.begin()
        first = [_filled(poison, size) for size in (1 << 10, 24)]
        poison.begin(as_before=True)
        again = [_filled(poison, size) for size in (1 << 10, 24)]
        poison.begin()
        other = [_filled(poison, size) for size in (1 << 10, 24)]
        assert all(map(torch.equal, first, again))
        assert not any(map(torch.equal, first, other))


def test_the_same_seed_fills_memory_alike_and_another_does_not() -> None:
    first, again, other = (_filled(Poison(random.Random(seed)), 1 << 10) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("dtype", [*_FLOATS, torch.int32, torch.int64])
def test_memory_that_was_never_written_is_told_from_results(dtype: torch.dtype) -> None:
    poison = Poison()
    for _ in range(3):
        poison.begin()
        fresh = _filled(poison, 1 << 10).view(dtype)
        assert is_poison(fresh) and is_poison(fresh[3:5]) and is_poison(fresh.view(2, -1).T)
        assert not is_poison(torch.cat([fresh[:8], torch.ones(1, dtype=dtype)]))
    numbers = torch.randn(64, generator=torch.Generator().manual_seed(0)) * 8
    for written in (numbers, torch.zeros(4), torch.full((4,), torch.nan), torch.full((4,), torch.inf)):
        assert not is_poison(written.to(dtype if dtype.is_floating_point else torch.float32))
    assert not is_poison(fresh[:0])
