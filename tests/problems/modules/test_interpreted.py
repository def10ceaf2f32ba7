"""Kernels of the module families are what their grades say, at CPU sizes.

One process interprets the whole sample: starting it costs more than most families.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from kernel_core.problems.graded import Generated
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.generate import FAMILIES, generate_modules
from kernel_core.problems.program import Size
from kernel_core.problems.renaming import under_other_names
from kernel_core.problems.source import parse_problem, resize

from .conftest import draw

SCRIPT = Path(__file__).parents[1] / "interpret_kernels.py"
SAMPLED = (
    "conv1d", "conv_transpose1d", "conv_pointwise", "conv_depthwise", "conv_elementwise", "conv_norm",
    "conv_reduce", "conv_pool", "activation", "elementwise_chain", "channel_parameter",
    "matmul_transposed", "matmul_triangular", "matrix_vector", "linear_elementwise", "linear_reduction",
    "linear_layernorm", "linear_pool", "reduce_dim", "logsumexp", "softmax_row", "scan", "vector_norm",
    "group_norm", "global_pool", "pair_loss", "row_loss", "row_gather", "gated", "rearranged",
    "shared_values",
)  # fmt: skip
"""Families that the interpreter runs in a second; `-m slow` draws of all."""
LOOPING = ("scan", "reduce_dim", "group_norm", "row_loss")


def outcomes(drafts: Sequence[Draft], sources: Sequence[Sequence[str]]) -> list[list[dict]]:
    """Outcome and launches of each of the `sources` against the reference of its draft."""
    work = []
    for draft, kernels in zip(drafts, sources, strict=True):
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        small = resize(problem, {size.name: size.cpu for size in draft.sizes})
        work.append({"reference": small.source, "kernels": list(kernels)})
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: Iterator[dict] = iter(json.loads(done.stdout.splitlines()[-1]))
    return [[next(answers) for _ in kernels] for kernels in sources]


def in_small_tiles(source: str) -> str:
    """The kernel with tiles so small that its loops take several turns at CPU sizes."""
    source = re.sub(r"min\(\d+ // BLOCK_C, [^\n]*", "max(1, 16 // BLOCK_C)", source)
    source = source.replace("2048 // BLOCK_C", "8 // BLOCK_C")
    source = re.sub(r"min\(\d+, (triton\.next_power_of_2\(inner\))\)", r"min(4, \1)", source)
    source = re.sub(r"BLOCK=min\(\d+, [^)]*\)\)", "BLOCK=64", source)
    return re.sub(r"\b(256|1024|2048|4096|8192|16384)\b(?=[,)])", "64", source)


def check(draft: Draft, answers: Sequence[dict]) -> None:
    for kernel, answer in zip(draft.kernels, answers, strict=True):
        where = (draft.family, draft.operators, kernel.grade, kernel.fault, answer, kernel.source)
        assert (answer["outcome"] == "correct") == (kernel.grade != "mistake"), where
        assert answer["launches"] > 0, where


def all_sources(drafts: Sequence[Draft]) -> list[list[str]]:
    return [[kernel.source for kernel in draft.kernels] for draft in drafts]


@cache
def interpreted() -> tuple[list[Draft], list[Draft], list[list[str]], list[list[dict]]]:
    """Draws of families, then of families with loops, whose good kernels have small tiles."""
    drafts, looping = [draw(family, 6) for family in SAMPLED], [draw(family, 4) for family in LOOPING]
    good = [[kernel.source for kernel in draft.kernels if kernel.grade != "mistake"] for draft in looping]
    small = [[in_small_tiles(source) for source in sources] for sources in good]
    assert all(one != other for one, other in zip(good, small, strict=True))
    return drafts, looping, small, outcomes([*drafts, *looping], [*all_sources(drafts), *small])


@pytest.mark.exhaustive
def test_good_kernels_are_right_and_mistakes_are_not() -> None:
    drafts, _, _, answers = interpreted()
    for draft, found in zip(drafts, answers, strict=False):
        check(draft, found)


@pytest.mark.exhaustive
def test_loops_of_several_turns_are_right_too() -> None:
    drafts, looping, small, answers = interpreted()
    for draft, sources, found in zip(looping, small, answers[len(drafts) :], strict=True):
        for source, answer in zip(sources, found, strict=True):
            assert answer["outcome"] == "correct", (draft.family, source)


@pytest.mark.exhaustive
def test_kernels_under_other_names_are_what_they_were() -> None:
    made = generate_modules("train", 40, 8)
    renamed = [under_other_names(one, random.Random(one.problem.id)) for one in made]
    drafts = [draft_of(one) for one in renamed]
    for draft, answers in zip(drafts, outcomes(drafts, all_sources(drafts)), strict=True):
        check(draft, answers)


def draft_of(made: Generated) -> Draft:
    problem = made.problem
    sizes = tuple(Size(name, problem.constants[name], small) for name, small in problem.cpu_constants.items())
    return Draft(problem.family, problem.tags, problem.source, sizes, made.kernels)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_sample_of_every_family_holds_too(seed: int) -> None:
    drafts = [draw(family, 100 + seed) for family in FAMILIES]
    for draft, answers in zip(drafts, outcomes(drafts, all_sources(drafts)), strict=True):
        check(draft, answers)
