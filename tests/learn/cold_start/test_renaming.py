"""Drawn names: kernels stay right, two texts get the same names, and what others know keeps its own."""

from __future__ import annotations

import ast
import random

import pytest

from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.learn.cold_start.renaming import rename_alike
from kernel_core.problems.modules.generate import FAMILIES, RESERVED, generate_modules
from kernel_core.records import Candidate

KERNEL = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2)], key=["size"])
@triton.jit
def scale(x, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # BLOCK places
    mask = at < size
    tl.store(out + at, tl.load(x + at, mask=mask) * 2.0, mask=mask)

class ModelNew(Module):
    def forward(self, x):
        scale[lambda meta: (triton.cdiv(x.size, meta["BLOCK"]),)](x, self.out, size=x.size)
"""


def test_names_of_kernels_are_drawn_and_those_that_others_know_stay() -> None:
    first, second = rename_alike([KERNEL, KERNEL.replace("2.0", "3.0")], random.Random(0))
    assert second == first.replace("2.0", "3.0")
    assert not {"scale", "BLOCK", "size", "at"} & {
        node.id for node in ast.walk(ast.parse(first)) if isinstance(node, ast.Name)
    }
    for kept in ("mask=mask", "num_warps=2", "def forward(self, x)", "self.out", "x.size", "tl.load(x + "):
        assert kept in first
    assert "BLOCK" not in first, "strings and comments name the parameter too"


def test_a_name_that_one_text_alone_has_stays() -> None:
    with_block, with_tile = rename_alike([KERNEL, KERNEL.replace("BLOCK", "TILE")], random.Random(0))
    assert "BLOCK" in with_block and "TILE" in with_tile


def test_text_that_is_no_python_stays() -> None:
    assert rename_alike(["def", KERNEL, KERNEL], random.Random(0))[0] == "def"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_familys_kernels_keep_their_form(family: str) -> None:
    split = "held_out" if family in RESERVED else "train"
    [made] = generate_modules(split, 1, 3, [family])
    for kernel in made.kernels:
        renamed, same = rename_alike([kernel.source, kernel.source], random.Random(1))
        assert renamed == same != kernel.source
        assert _form(renamed) == _form(kernel.source)


@pytest.mark.parametrize(
    "family",
    [
        "conv_pool",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("attention", "linear_reduction")),
    ],
)
def test_a_renamed_kernel_is_judged_correct(family: str, quick_gym: Gym) -> None:
    [made] = generate_modules("train", 1, 5, [family])
    best = made.kernels[1].source
    renamed, _ = rename_alike([best, best], random.Random(2))
    [found] = quick_gym.judge([JudgeRequest(problem=made.problem, candidate=Candidate.from_source(renamed))])
    assert found.verdict == "correct", found.feedback


def _form(source: str) -> list[str]:
    return [type(node).__name__ for node in ast.walk(ast.parse(source))]
