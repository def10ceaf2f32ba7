"""The generator's kernels are what their grades say: run for real, and compiled for a real GPU."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kernel_core.problems.families import RESERVED, TRAINED
from kernel_core.problems.generate import FAMILIES, generate
from kernel_core.problems.graded import Generated
from kernel_core.problems.source import resize

HERE = Path(__file__).parent
GOOD = ("naive", "fused", "tuned", "lazy")
FAILS_ALREADY_IN_PYTHON = {"syntax_error", "missing_allocation"}


def run_script(name: str, work: list[dict], **environment: str) -> list:
    done = subprocess.run(
        [sys.executable, str(HERE / name)],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def draw(seed: int, per_family: int = 1) -> list[Generated]:
    trained = [made for name in TRAINED for made in generate("train", per_family, seed, (name,))]
    reserved = [made for name in RESERVED for made in generate("held_out", per_family, seed, (name,))]
    return trained + reserved


def interpreted(problems: list[Generated]) -> list[tuple[Generated, object, dict]]:
    work = [
        {
            "reference": resize(made.problem, made.problem.cpu_constants).source,
            "kernels": [kernel.source for kernel in reversed(made.kernels)],
        }
        for made in problems
    ]
    answers = iter(run_script("interpret_kernels.py", work))
    return [(made, kernel, next(answers)) for made in problems for kernel in reversed(made.kernels)]


IN_FAST_SUITE = slice(None, None, 12)
"""Of the families in their order; `-m exhaustive` interprets the others."""


def drawn(part: str) -> list[Generated]:
    """One problem of each family in that part of the families."""
    every = draw(seed=11)
    assert len(every) == len(FAMILIES)
    sampled = every[IN_FAST_SUITE]
    return sampled if part == "sampled" else [made for made in every if made not in sampled]


@cache
def sample(part: str) -> list[tuple[Generated, object, dict]]:
    return interpreted(drawn(part))


PARTS = pytest.mark.parametrize("part", ["sampled", pytest.param("others", marks=pytest.mark.exhaustive)])


@PARTS
def test_every_good_kernel_of_every_family_is_correct_and_launches_its_own_kernels(part: str) -> None:
    good = [(made, kernel, answer) for made, kernel, answer in sample(part) if kernel.grade in GOOD]
    assert len(good) == len(GOOD) * len(drawn(part))
    for made, kernel, answer in good:
        assert answer["outcome"] == "correct", (made.problem.family, kernel.grade, kernel.source)
        assert answer["launches"] > 0


@PARTS
def test_fused_and_lazy_kernels_launch_once_and_naive_ones_once_an_operation(part: str) -> None:
    draws = 2
    for made, kernel, answer in sample(part):
        if kernel.grade in ("fused", "tuned", "lazy"):
            assert answer["launches"] == draws, made.problem.family
        if kernel.grade == "naive":
            assert answer["launches"] >= 2 * draws, made.problem.family


@PARTS
def test_every_mistake_fails_in_its_way(part: str) -> None:
    for made, kernel, answer in sample(part):
        if kernel.fault == "torch_decoy":
            assert answer == {"outcome": "correct", "launches": 0}
        elif kernel.grade == "mistake":
            assert answer["outcome"] != "correct", (made.problem.family, kernel.fault, kernel.source)
        if kernel.fault in ("undefined_name", "missing_constexpr", "bad_block", "unknown_function"):
            assert answer["outcome"] == "raised InterpreterError", (kernel.fault, kernel.source)
        if kernel.fault in FAILS_ALREADY_IN_PYTHON:
            assert answer["outcome"].startswith("raised")


def sizes_of_cubins(problems: list[Generated], grades: tuple[str, ...]) -> list[int]:
    work = [
        {"reference": made.problem.source, "kernel": kernel.source}
        for made in problems
        for kernel in made.kernels
        if kernel.grade in grades
    ]
    return run_script("compile_kernels.py", work)


@pytest.mark.exhaustive
def test_a_kernel_of_every_layout_compiles_for_an_h200_at_its_own_size() -> None:
    families = ("elementwise_chain", "loss", "matmul_epilogue")  # flat, rows, tiles
    cubins = sizes_of_cubins([generate("train", 1, 12, (name,))[0] for name in families], ("tuned",))
    assert len(cubins) == len(families)
    assert min(cubins) > 1000


@pytest.mark.slow
def test_good_kernels_of_every_family_compile_for_an_h200_at_their_own_sizes() -> None:
    problems = draw(seed=12, per_family=2)
    assert len(sizes_of_cubins(problems, GOOD)) == len(GOOD) * len(problems)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_sample_of_every_family_holds_too(seed: int) -> None:
    for made, kernel, answer in interpreted(draw(seed=1000 + seed, per_family=5)):
        expected = kernel.grade in GOOD or kernel.fault == "torch_decoy"
        assert (answer["outcome"] == "correct") == expected, (made.problem.family, kernel, answer)


def test_no_kernel_knows_the_problem_s_sizes() -> None:
    for made in draw(seed=13):
        sizes = {size for size in made.problem.constants.values() if size > 128}
        for kernel in made.kernels:
            if kernel.fault == "syntax_error":
                continue
            numbers = {
                node.value for node in ast.walk(ast.parse(kernel.source)) if isinstance(node, ast.Constant)
            }
            blocks = {256, 512, 2048, 4096}
            assert not (numbers & sizes) - blocks, (made.problem.family, kernel.source)


def test_all_kernels_share_one_skeleton() -> None:
    for made in draw(seed=14):
        for kernel in made.kernels:
            if kernel.grade in GOOD:
                tree = ast.parse(kernel.source)
                names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
                assert names == ["kernel", "ModelNew"]
                works = kernel.grade == "lazy" and "F." in kernel.source
                functional = "import torch.nn.functional as F\n" if works else ""
                head = f"import torch\nimport torch.nn as nn\n{functional}import triton\n"
                assert kernel.source.startswith(head)
                assert 1 <= kernel.thinking.count("\n") + 1 <= 2
