"""Nothing crosses from one split into another."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.corpus.normalise import reference_hash
from kernel_core.errors import ConfigError
from kernel_core.problems.families import RESERVED, TRAINED
from kernel_core.problems.generate import generate
from kernel_core.problems.load import load_dojo
from kernel_core.problems.modules import generate as modules
from kernel_core.problems.ops import UNARY
from kernel_core.problems.splits import reserved_for, split_of

SPLITS = ("train", "validation", "held_out")
seeds = st.integers(min_value=0, max_value=2**32)


def sampled(names: Iterable[str]) -> list[Any]:
    """Every sixth is of the fast suite."""
    return [
        pytest.param(name, marks=() if number % 6 == 0 else pytest.mark.exhaustive)
        for number, name in enumerate(names)
    ]


@settings(max_examples=6, deadline=None)
@given(seeds, seeds)
def test_no_reference_is_in_two_splits_whatever_the_seeds(seed: int, other_seed: int) -> None:
    found = {
        split: {
            reference_hash(made.problem.source)
            for own in (seed, other_seed)
            for made in generate(split, 24, own)
        }
        for split in SPLITS
    }
    assert not found["train"] & found["validation"]
    assert not found["train"] & found["held_out"]
    assert not found["validation"] & found["held_out"]


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from(SPLITS))
def test_reserved_families_and_pairs_stay_in_their_splits(seed: int, split: str) -> None:
    for made in generate(split, 10, seed):
        kinds = made.problem.tags[1:]
        assert made.problem.tags[0] == split
        if split != "held_out":
            assert made.problem.family in TRAINED
        for name in kinds:
            assert name not in SPLITS
    for draw in TRAINED.values():
        program = draw(random.Random(seed))
        pairs = {reserved_for(first, second) for first, second in pairwise(program.kinds)}
        if split_of(program) == "train":
            assert pairs == {"train"}
        if split_of(program) == "validation":
            assert "held_out" not in pairs


def test_a_tenth_or_so_of_the_pairs_is_kept_for_each_evaluation() -> None:
    pairs = [reserved_for(first, second) for first in UNARY for second in UNARY]
    assert 0.04 < pairs.count("held_out") / len(pairs) < 0.14
    assert 0.03 < pairs.count("validation") / len(pairs) < 0.12


@pytest.mark.parametrize("family", sampled(TRAINED))
def test_every_trained_family_has_problems_in_every_split(family: str) -> None:
    for split in SPLITS:
        assert {made.problem.family for made in generate(split, 2, 5, (family,))} == {family}


def test_reserved_families_are_in_held_out_alone_and_weigh_there() -> None:
    assert len(RESERVED) >= 3
    held_out = [made.problem.family for made in generate("held_out", 58, 0)]
    assert set(RESERVED) < set(held_out)
    assert 0.3 < sum(family in RESERVED for family in held_out) / len(held_out) < 0.5
    for family in RESERVED:
        with pytest.raises(ConfigError, match="train"):
            generate("train", 1, 0, (family,))


def test_the_generator_never_draws_a_problem_of_our_own_suite() -> None:
    own = {reference_hash(problem.source) for problem in load_dojo()}
    for split in SPLITS:
        assert not own & {reference_hash(made.problem.source) for made in generate(split, 150, 21)}


@pytest.mark.parametrize("name", sampled(sorted(set(modules.FAMILIES) - modules.RESERVED)))
def test_a_module_family_is_short_if_none_of_its_problems_can_be_held_out(name: str) -> None:
    drafts = (modules.FAMILIES[name](random.Random(f"{name} {number}")) for number in range(80))
    longest = max(len(draft.operators) for draft in drafts)
    assert (longest < 3) == (name in modules.SHORT)
