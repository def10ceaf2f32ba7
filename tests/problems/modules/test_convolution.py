"""Convolutions and chains behind them: kernels are what their grades say, at CPU sizes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kernel_core.problems.modules.convolution import FAMILIES
from kernel_core.problems.modules.convolution.geometry import Wish, draw_geometry
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.source import parse_problem, resize

SCRIPT = Path(__file__).parents[1] / "interpret_kernels.py"
QUICK = ("conv1d", "conv_transpose1d", "conv_pointwise", "conv_depthwise", "conv_elementwise", "conv_norm",
         "conv_reduce", "conv_pool")  # fmt: skip


def draw(family: str, seed: int) -> Draft:
    return FAMILIES[family](random.Random(f"{family} {seed}"))


def at_cpu_sizes(draft: Draft) -> str:
    problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
    return resize(problem, {size.name: size.cpu for size in draft.sizes}).source


def outcomes(drafts: list[Draft]) -> list[list[str]]:
    work = [
        {"reference": at_cpu_sizes(draft), "kernels": [kernel.source for kernel in draft.kernels]}
        for draft in drafts
    ]
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = iter(json.loads(done.stdout.splitlines()[-1]))
    return [[next(answers)["outcome"] for _ in draft.kernels] for draft in drafts]


@cache
def sample() -> list[tuple[Draft, list[str]]]:
    drafts = [draw(family, 3) for family in QUICK]
    return list(zip(drafts, outcomes(drafts), strict=True))


def check(drafts: list[tuple[Draft, list[str]]]) -> None:
    for draft, found in drafts:
        for kernel, outcome in zip(draft.kernels, found, strict=True):
            expected = kernel.grade != "mistake"
            where = (draft.family, draft.operators, kernel.grade, kernel.fault, outcome, kernel.source)
            assert (outcome == "correct") == expected, where


def test_good_kernels_are_right_and_mistakes_are_not() -> None:
    check(sample())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_sample_of_every_family_holds_too(seed: int) -> None:
    drafts = [draw(family, 100 + seed) for family in FAMILIES]
    check(list(zip(drafts, outcomes(drafts), strict=True)))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_repeats_itself_and_has_all_grades(family: str) -> None:
    for seed in range(20):
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        assert [kernel.grade for kernel in draft.kernels] == ["naive", "fused", "tuned", "mistake"]
        assert all(len(kernel.thinking.split()) <= 60 for kernel in draft.kernels)
        assert draft == draw(family, seed)
    assert len({draw(family, seed).reference for seed in range(20)}) == 20


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mistake_differs_from_the_kernel_that_it_is_made_of(family: str) -> None:
    for seed in range(40):
        *good, mistake = draw(family, seed).kernels
        assert mistake.source not in {kernel.source for kernel in good}, (family, seed, mistake.fault)


@pytest.mark.parametrize("transposed", [False, True])
def test_output_sizes_are_positive_on_the_cpu_and_the_gpu(transposed: bool) -> None:
    for seed in range(60):
        geometry = draw_geometry(random.Random(seed), Wish(rank=1 + seed % 3, transposed=transposed))
        for extent in (
            tuple(size.gpu for size in geometry.spatial),
            tuple(size.cpu for size in geometry.spatial),
        ):
            assert min(geometry.out_extent(extent)) >= 1, geometry
        assert geometry.in_channels.cpu % geometry.groups == 0
        assert geometry.out_channels.gpu % geometry.groups == 0
