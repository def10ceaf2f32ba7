"""A module stays as it is and some of its layers become kernels: the judge finds the answers correct."""

from __future__ import annotations

import ast
import random

import pytest

from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.layer_swap.parts import PARTS
from kernel_core.problems.layer_swap.swap import swapped
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Problem

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
BLOCK = (
    HEAD
    + """class Mlp(nn.Module):
    def __init__(self, dim: int, act_layer=nn.GELU, device=None, dtype=None):
        dd = {'device': device, 'dtype': dtype}
        super().__init__()
        self.fc1 = nn.Linear(dim, 2 * dim, **dd)
        self.act = act_layer()
        self.fc2 = nn.Linear(2 * dim, dim, bias=False, **dd)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Model(nn.Module):
    def __init__(self, dim: int):
        super(Model, self).__init__()
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.mlp = Mlp(dim)
        assert isinstance(self.mlp.act, nn.GELU)

    def forward(self, x):
        weights = F.softmax(x @ x.transpose(1, 2), dim=-1)  # größer
        return x.sigmoid() + self.mlp(self.norm(weights @ x)) + self.norm(x)


BASE, OTHER = 10, 5
EPS = BASE**-5
LAYERS = [nn.GELU, nn.SiLU]
B, T, D = 2, 5, 8


def get_inputs():
    return [torch.randn(B, T, D)]


def get_init_inputs():
    return [D]
"""
)


def _problem(text: str) -> Problem:
    return parse_problem(text, id="test/block", suite="test")


def _of_one_layer(layer: str, shape: str) -> str:
    return (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.layer = nn.{layer}\n\n    def forward(self, x):\n        return self.layer(x)\n\n\n"
        f"def get_inputs():\n    return [torch.randn({shape})]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def _verdicts(problem: Problem, kernels: list[GradedKernel], gym: Gym) -> list[str]:
    candidates = [Candidate.from_source(one.source) for one in kernels]
    requests = [JudgeRequest(problem=problem, candidate=one, seed=1, timing=False) for one in candidates]
    return [f"{one.verdict}: {one.feedback}" for one in gym.judge(requests)]


def _all_of(problem: Problem) -> dict[str, GradedKernel]:
    """Answers by what is said of their parts, of many draws."""
    found = [one for seed in range(40) for one in swapped(problem, random.Random(seed))]
    return {one.thinking: one for one in found}


def test_each_part_of_a_block_becomes_a_kernel_that_is_correct(quick_gym: Gym) -> None:
    problem = _problem(BLOCK)
    answers = _all_of(problem)
    alone = [one for said, one in answers.items() if "This becomes" in said]
    assert len(alone) == 7  # gelu, linear, layer norm, softmax, sigmoid, add, and a line of arithmetic
    together = [one for said, one in answers.items() if "These become" in said]
    verdicts = _verdicts(problem, [*alone, *together[:6]], quick_gym)
    assert [one for one in verdicts if not one.startswith("correct")] == []


LINES = (
    HEAD
    + """def limited(x, low=0.5, width: int = 2):
    return (x * width - low).clamp(min=-1, max=1.5) ** 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(D))
        self.eps = 1e-5

    def forward(self, x):
        rows = x.shape[0]
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.scale
        first = x[:, rows - 1 + D - 8 - rows + 1]
        return limited(y), torch.where(first > 0.1, first, -first / rows)


B, D = 5, 8


def get_inputs():
    return [torch.randn(B, D)]


def get_init_inputs():
    return []
"""
)


def test_the_longest_lines_of_arithmetic_become_kernels_that_are_correct(quick_gym: Gym) -> None:
    answers = swapped(_problem(LINES), random.Random(0))
    said = [one.thinking.partition("computes ")[2].partition(" in registers")[0] for one in answers]
    clamped = "tl.minimum(tl.maximum(x * width - low, -1.0), 1.5)"
    assert said == [f"`{clamped} * {clamped}`", "`x * tl.rsqrt(value_1 + eps) * scale`"]
    assert "(x, x.pow(2).mean(-1, keepdim=True), self.scale, self.eps) " in answers[1].source.replace(
        "\n", " "
    )
    assert [
        one for one in _verdicts(_problem(LINES), answers, quick_gym) if not one.startswith("correct")
    ] == []


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        *((f"{part.layer}()", "3, 700") for part in PARTS if part.name in ("relu", "mish", "hardswish")),
        ("GroupNorm(2, 6)", "3, 6, 5, 7"),
        ("GroupNorm(3, 6, affine=False)", "2, 6, 9"),
        ("LayerNorm(1100, elementwise_affine=False)", "4, 1100"),
        ("AdaptiveAvgPool2d(1)", "2, 3, 40, 30"),
        ("Conv2d(3, 5, 3, stride=2, padding=1)", "2, 3, 9, 8"),
        ("Conv2d(4, 6, (3, 1), dilation=2, bias=False)", "2, 4, 9, 8"),
        ("Linear(70, 80)", "3, 4, 70"),
    ],
)
def test_a_layer_with_settings_becomes_a_kernel_that_is_correct(
    layer: str, shape: str, quick_gym: Gym
) -> None:
    problem = _problem(_of_one_layer(layer, shape))
    [answer] = swapped(problem, random.Random(1))
    [verdict] = _verdicts(problem, [answer], quick_gym)
    assert verdict.startswith("correct"), verdict


@pytest.mark.parametrize(
    "layer",
    ["GELU(approximate='tanh')", "AdaptiveAvgPool2d(3)", "Conv2d(4, 4, 3, groups=4)", "LeakyReLU(0.1)"],
)
def test_a_layer_with_other_work_stays(layer: str) -> None:
    assert swapped(_problem(_of_one_layer(layer, "2, 4, 9, 8")), random.Random(1)) == []


def test_the_answer_keeps_all_that_it_does_not_replace() -> None:
    for answer in _all_of(_problem(BLOCK)).values():
        tree = ast.parse(answer.source)
        assert "größer" in answer.source and "isinstance(self.mlp.act, nn.GELU)" in answer.source
        assert not any(name in answer.source for name in ("get_inputs", "LAYERS", "B, T, D", "Model,"))
        assert "BASE, OTHER = 10, 5" in answer.source
        assert {"Mlp", "ModelNew"} <= {one.name for one in tree.body if isinstance(one, ast.ClassDef)}
        functions = [one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)]
        top = [one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
        assert len(top) == len(set(top)) and len(functions) >= len(top)


def test_the_same_seed_gives_the_same_answers() -> None:
    problem = _problem(BLOCK)
    assert swapped(problem, random.Random(7)) == swapped(problem, random.Random(7))
