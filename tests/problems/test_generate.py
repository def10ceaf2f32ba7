"""The generator is seeded, endless, varied and well formed."""

from __future__ import annotations

import ast
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.problems.generate import FAMILIES, MISTAKES_PER_PROBLEM, generate
from kernel_core.problems.source import parse_problem, resize

seeds = st.integers(min_value=0, max_value=2**32)


def test_the_same_arguments_give_the_same_problems_and_kernels() -> None:
    assert generate("train", 40, 7) == generate("train", 40, 7)
    assert generate("train", 40, 7) != generate("train", 40, 8)


def test_a_longer_draw_begins_with_the_shorter_one() -> None:
    assert generate("held_out", 60, 3)[:25] == generate("held_out", 25, 3)


def test_all_problems_of_a_draw_are_different() -> None:
    drawn = generate("train", 300, 1)
    assert len({made.problem.id for made in drawn}) == 300
    assert len({made.problem.source for made in drawn}) == 300


@settings(max_examples=25, deadline=None)
@given(seeds, st.sampled_from(["train", "validation", "held_out"]))
def test_every_problem_reads_back_as_itself(seed: int, split: str) -> None:
    for made in generate(split, 6, seed):
        problem = made.problem
        read = parse_problem(problem.source, id=problem.id, suite=problem.suite, family=problem.family)
        drawn = {"cpu_constants": problem.cpu_constants, "tags": problem.tags}
        assert read.model_copy(update=drawn) == problem
        assert problem.cpu_constants.keys() == problem.constants.keys()
        small = resize(problem, problem.cpu_constants)
        assert small.constants == problem.cpu_constants


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_kernels_are_graded_from_naive_to_tuned_and_then_wrong_in_different_ways_and_lazy(seed: int) -> None:
    for made in generate("train", 6, seed):
        grades = [kernel.grade for kernel in made.kernels]
        assert grades == ["naive", "fused", "tuned"] + ["mistake"] * MISTAKES_PER_PROBLEM + ["lazy"]
        faults = [kernel.fault for kernel in made.kernels if kernel.grade == "mistake"]
        assert len(set(faults)) == len(faults)
        assert len({kernel.source for kernel in made.kernels}) >= len(grades) - 1
        for kernel in made.kernels:
            assert bool(kernel.fault) == (kernel.grade == "mistake")
            if kernel.fault != "syntax_error":
                ast.parse(kernel.source)


def test_every_family_and_every_kind_of_mistake_turns_up() -> None:
    drawn = generate("train", 400, 2) + generate("held_out", 60, 2)
    assert {made.problem.family for made in drawn} == set(FAMILIES)
    faults = Counter(kernel.fault for made in drawn for kernel in made.kernels if kernel.fault)
    assert faults.keys() >= {
        *("missing_mask", "wrong_axis", "wrong_reduction", "wrong_order", "wrong_constant", "wrong_op"),
        *("off_by_one", "undefined_name", "wrong_dtype", "missing_constexpr", "missing_allocation"),
        *("missing_return", "dropped_op", "torch_decoy", "syntax_error", "bad_block", "unknown_function"),
        *("wrong_index", "wrong_count"),
    }


def test_sizes_are_large_on_a_gpu_and_awkward_on_a_cpu() -> None:
    for made in generate("train", 100, 4):
        elements = 1
        for size in made.problem.cpu_constants.values():
            elements *= int(size)
        assert elements < 400_000
        assert any(int(size) & (int(size) - 1) for size in made.problem.cpu_constants.values())


def test_texts_are_short_enough_for_a_small_model() -> None:
    drawn = generate("train", 200, 6)
    references = sorted(len(made.problem.source) for made in drawn)
    fused = sorted(len(kernel.source) for made in drawn for kernel in made.kernels if kernel.grade == "fused")
    assert references[100] < 450
    assert references[-1] < 800
    assert fused[100] < 850
    assert fused[-1] < 1700


@pytest.mark.exhaustive
def test_a_thousand_problems_take_seconds() -> None:
    started = time.process_time()
    generate("train", 1000, 9)
    assert time.process_time() - started < 8
