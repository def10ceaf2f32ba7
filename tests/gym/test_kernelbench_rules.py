"""KernelBench's rules, beside ours: what they take that ours do not, and the other way round."""

from collections.abc import Iterator

import pytest
import torch
from exploit_files import PROBLEMS, text_of

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge import kernelbench_rules
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Verdict

from .conftest import HEAD

KEYS = {
    "compiled",
    "correctness",
    "metadata",
    "runtime",
    "runtime_stats",
    "ref_runtime",
    "ref_runtime_stats",
}


@pytest.fixture(scope="module")
def strict() -> Iterator[PooledGym]:
    """A judge that follows KernelBench's rules."""
    with open_gym(GymConfig(workers=1, rules="kernelbench")) as opened:
        yield opened


def judged(gym, source, problem=PROBLEMS["softmax_rows"]):
    return gym.judge([JudgeRequest(problem=problem, candidate=Candidate.from_source(source), seed=1)])[0]


def test_the_seeds_are_those_of_their_generator():
    generator = torch.Generator().manual_seed(42)
    drawn = [int(torch.randint(0, 2**32 - 1, (1,), generator=generator)) for _ in range(5)]
    assert tuple(drawn) == kernelbench_rules.SEEDS


def test_an_honest_kernel_passes_five_trials_and_their_json_says_so(strict):
    evaluation = judged(strict, text_of("honest_softmax"))
    assert (evaluation.verdict, evaluation.trials_passed, evaluation.trials) == (Verdict.CORRECT, 5, 5)
    result = kernelbench_rules.result_of(evaluation)
    assert result.keys() == KEYS
    assert (result["compiled"], result["correctness"], result["runtime"]) == (True, True, -1.0)


def test_torch_itself_is_right_by_their_rules_and_hacked_by_ours(strict, gym):
    source = text_of("torch_fallback")
    assert judged(strict, source).verdict is Verdict.CORRECT
    assert judged(gym, source).verdict is Verdict.HACKED


RELU = parse_problem(
    "import torch\nimport torch.nn as nn\n"
    "class Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    "def get_inputs():\n    return [torch.rand(5, 33)]\n"
    "def get_init_inputs():\n    return []\n",
    id="t/relu",
    suite="t",
)
IDENTITY = (
    HEAD + "@triton.jit\n"
    "def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n"
    "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
    "    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)\n"
    "class ModelNew(nn.Module):\n"
    "    def forward(self, x):\n"
    "        out = torch.empty_like(x)\n"
    "        kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)\n"
    "        return out\n"
)


def test_what_is_right_between_0_and_1_only_is_right_by_their_rules(strict, gym):
    assert judged(strict, IDENTITY, RELU).verdict is Verdict.CORRECT
    assert judged(gym, IDENTITY, RELU).verdict is Verdict.WRONG


def test_weights_agree_by_the_order_of_construction_alone(strict, gym):
    problem = parse_problem(
        "import torch\nimport torch.nn as nn\n"
        "class Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.scale = nn.Parameter(torch.randn(33))\n"
        "    def forward(self, x):\n        return x * self.scale\n"
        "def get_inputs():\n    return [torch.rand(5, 33)]\n"
        "def get_init_inputs():\n    return []\n",
        id="t/scale",
        suite="t",
    )
    source = (
        HEAD + "@triton.jit\n"
        "def kernel(x_ptr, scale_ptr, out_ptr, cols, BLOCK: tl.constexpr):\n"
        "    j = tl.arange(0, BLOCK)\n"
        "    i = tl.program_id(0) * cols + j\n"
        "    value = tl.load(x_ptr + i, mask=j < cols) * tl.load(scale_ptr + j, mask=j < cols)\n"
        "    tl.store(out_ptr + i, value, mask=j < cols)\n"
        "class ModelNew(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        {before}self.scale = nn.Parameter(torch.randn(33))\n"
        "    def forward(self, x):\n"
        "        out = torch.empty_like(x)\n"
        "        kernel[(5,)](x, self.scale, out, 33, BLOCK=64)\n"
        "        return out\n"
    )
    same, other = source.format(before=""), source.format(before="torch.randn(1); ")
    assert judged(strict, same, problem).correct and judged(gym, same, problem).correct
    assert judged(gym, other, problem).correct
    assert judged(strict, other, problem).verdict is Verdict.WRONG


@pytest.mark.parametrize(
    ("source", "compiled", "key"),
    [("nonsense(", False, "compilation_error"), (IDENTITY, True, "correctness_issue")],
)
def test_failures_are_told_where_theirs_are(strict, source, compiled, key):
    result = kernelbench_rules.result_of(judged(strict, source))
    assert (result["compiled"], result["correctness"]) == (compiled, False)
    assert key in result["metadata"]
