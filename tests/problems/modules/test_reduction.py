"""Reductions, scans, norms, pooling, losses, attention: kernels are what their grades say, at CPU sizes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.errors import ConfigError
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.reduction import FAMILIES
from kernel_core.problems.modules.reduction.answer import Answer, fill, mistake
from kernel_core.problems.modules.reduction.layout import draw_layout
from kernel_core.problems.source import parse_problem, resize

SCRIPT = Path(__file__).parents[1] / "interpret_kernels.py"
QUICK = ("reduce_dim", "logsumexp", "softmax_row", "scan", "vector_norm", "group_norm", "global_pool",
         "pair_loss", "row_loss", "row_gather", "gated")  # fmt: skip


def draw(family: str, seed: int) -> Draft:
    return FAMILIES[family](random.Random(f"{family} {seed}"))


def at_cpu_sizes(draft: Draft) -> str:
    problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
    return resize(problem, {size.name: size.cpu for size in draft.sizes}).source


def in_small_tiles(source: str) -> str:
    """The kernel with tiles so small that its loops take several turns at CPU sizes."""
    source = re.sub(r"min\(\d+ // BLOCK_C, [^\n]*", "max(1, 16 // BLOCK_C)", source)
    source = source.replace("2048 // BLOCK_C", "8 // BLOCK_C")
    source = re.sub(r"min\(\d+, (triton\.next_power_of_2\(inner\))\)", r"min(4, \1)", source)
    source = re.sub(r"BLOCK=min\(\d+, [^)]*\)\)", "BLOCK=64", source)
    return re.sub(r"\b(256|1024|2048|4096|8192|16384)\b(?=[,)])", "64", source)


def outcomes(references: list[str], kernels: list[list[str]]) -> list[list[str]]:
    work = [
        {"reference": reference, "kernels": sources}
        for reference, sources in zip(references, kernels, strict=True)
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
    return [[next(answers)["outcome"] for _ in sources] for sources in kernels]


def check(drafts: list[Draft]) -> None:
    found = outcomes(
        [at_cpu_sizes(draft) for draft in drafts],
        [[kernel.source for kernel in draft.kernels] for draft in drafts],
    )
    for draft, answers in zip(drafts, found, strict=True):
        for kernel, outcome in zip(draft.kernels, answers, strict=True):
            where = (draft.family, draft.operators, kernel.grade, kernel.fault, outcome, kernel.source)
            assert (outcome == "correct") == (kernel.grade != "mistake"), where


def test_good_kernels_are_right_and_mistakes_are_not() -> None:
    check([draw(family, 3) for family in QUICK])


def test_loops_of_several_turns_are_right_too() -> None:
    drafts = [draw(family, 4) for family in ("reduce_dim", "scan", "group_norm", "row_loss")]
    sources = [
        [in_small_tiles(kernel.source) for kernel in draft.kernels if kernel.grade != "mistake"]
        for draft in drafts
    ]
    found = outcomes([at_cpu_sizes(draft) for draft in drafts], sources)
    for draft, kernels, answers in zip(drafts, sources, found, strict=True):
        for source, outcome in zip(kernels, answers, strict=True):
            assert outcome == "correct", (draft.family, source)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_sample_of_every_family_holds_too(seed: int) -> None:
    check([draw(family, 100 + seed) for family in FAMILIES])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_repeats_itself_and_has_good_kernels_and_mistakes(family: str) -> None:
    for seed in range(20):
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        grades = [kernel.grade for kernel in draft.kernels]
        assert 2 <= sum(grade != "mistake" for grade in grades) <= 3
        assert 1 <= grades.count("mistake") <= 2
        assert all(len(kernel.thinking.split()) <= 60 for kernel in draft.kernels)
        assert draft == draw(family, seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_of_different_seeds_differ(family: str) -> None:
    assert len({draw(family, seed).reference for seed in range(20)}) > 15


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_short_and_no_mistake_is_a_good_kernel(family: str) -> None:
    for seed in range(20):
        kernels = draw(family, seed).kernels
        good = {kernel.source for kernel in kernels if kernel.grade != "mistake"}
        for kernel in kernels:
            assert len(kernel.source) < 3400, (family, seed, len(kernel.source))
            assert kernel.grade != "mistake" or kernel.source not in good, (family, seed, kernel.fault)


def test_a_layout_fits_a_gpu_and_keeps_its_dimension_in_bounds() -> None:
    for seed in range(200):
        layout = draw_layout(random.Random(seed), (2, 3, 4, 5), most_n=4096)
        numbers = [size.gpu for size in layout.sizes]
        total = 1
        for number in numbers:
            total *= number
        assert 10_000_000 < total < 100_000_000
        assert layout.n == numbers[layout.dim] <= 4096


def test_a_marker_alone_on_its_line_takes_lines_at_its_indentation_or_goes() -> None:
    template = "def f():\n    @BODY@\n    @NOTHING@\n    return @VALUE@\n"
    text = fill(template, BODY="a = 1\nb = 2", NOTHING="", VALUE="a + b")
    assert text == "def f():\n    a = 1\n    b = 2\n    return a + b\n"


def test_a_mistake_that_changes_nothing_is_refused() -> None:
    right = Answer("fused", ("x = 1\n",), ("return x",), "One number.")
    with pytest.raises(ConfigError, match="no_root"):
        mistake(right, "sqrt", "", "no_root")
