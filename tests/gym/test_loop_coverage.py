"""Loops and grids that turn less where they are judged are run where they turn, or a finding names them."""

from __future__ import annotations

import pytest

from kernel_core.gym.channel.loop_coverage import covering, enough_of, merged, missing, turns_of, values_of
from kernel_core.gym.channel.messages import Kernel, Launch
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.scaled_sizes import Room, cheap_room, turning_sizes
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Verdict

from .conftest import HEAD

_SUM = """
ROWS = 2
WIDTH = 67108864

class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=-1)

def get_inputs():
    return [torch.randn(ROWS, WIDTH)]

def get_init_inputs():
    return []
"""
_TWICE = """
N = 67108864

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.randn(N)]

def get_init_inputs():
    return []
"""
_KERNEL = """
@triton.jit
def twice(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, 2.0 * tl.load(x_ptr + at, mask=at < n), mask=at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        twice[(512,)](x, y, x.numel(), BLOCK=8192)
        return y
"""
"""Its loop turns once below four million values."""


def test_turns_are_counted_as_far_as_more_show_no_more() -> None:
    kernels = [Kernel(name="add", line=7, globals={})]
    launches = [Launch(launch=0, grid=grid, args={}, options={}) for grid in ((1, 90), (2, 1))]
    turns = turns_of([(11, 1), (15, 400)], kernels, launches)
    assert turns == {
        "the loop in line 11": 1,
        "the loop in line 15": 17,
        "axis 0 of the grid of add": 2,
        "axis 1 of the grid of add": 17,
    }
    assert enough_of(turns) == {**dict.fromkeys(turns, 3), **{name: turns[name] for name in [*turns][::2]}}


def test_only_whole_numbers_are_sizes() -> None:
    assert values_of({"B": 4, "CHANNELS": 64, "EPS": 1e-5, "IS_CAUSAL": True}) == {
        "the size B": 4,
        "the size CHANNELS": 49,
    }


def test_what_turned_less_is_missing_in_spite_of_other_runs() -> None:
    judged = merged({"a": 1, "b": 3}, {"a": 2, "c": 1})
    assert judged == {"a": 2, "b": 3, "c": 1}
    assert missing({"a": 3, "b": 3, "c": 1, "d": 2}, judged) == {"a": 3, "d": 2}


def test_fewest_passes_that_turn_most_are_chosen() -> None:
    tried = [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}, {"a": 9, "b": 2}, {"b": 9}]
    assert covering({"a": 3, "b": 2}, {}, tried) == [3]
    assert covering({"a": 3, "b": 9}, {}, tried) == [2, 4]
    assert covering({"a": 3, "b": 9}, {"a": 3, "b": 8}, tried) == [4]
    assert covering({"c": 3}, {}, tried) == []
    assert covering({"a": 3}, {}, []) == []


def test_sizes_grow_alone_and_together_up_to_a_limit() -> None:
    problem = parse_problem(HEAD + _SUM.replace("ROWS = 2", "ROWS = 8"), id="test/turning", suite="test")
    sizes = turning_sizes(Reference(problem, {"ROWS": 2, "WIDTH": 2**16}))
    assert {"ROWS": 4, "WIDTH": 2**16} in sizes
    assert {"ROWS": 4, "WIDTH": 2**17} in sizes
    assert max(rows * width for rows, width in (chosen.values() for chosen in sizes)) <= 2**20  # type: ignore[operator, type-var]


def test_a_cheap_run_needs_at_most_four_times_that_of_the_run_sizes() -> None:
    problem = parse_problem(HEAD + _SUM, id="test/turning", suite="test")
    small, large = (cheap_room(Reference(problem, {"ROWS": 2, "WIDTH": width})) for width in (2**10, 2**17))
    assert small == Room(2**19, 2**24)
    assert large.num_bytes == 4 * (2 * 2**17 + 2) * 4


@pytest.mark.exhaustive
def test_a_loop_that_no_small_size_turns_is_a_finding(gym: PooledGym) -> None:
    problem = parse_problem(HEAD + _TWICE, id="test/turning", suite="test")
    candidate = Candidate.from_source(HEAD + _KERNEL)
    [judged] = gym.judge([JudgeRequest(problem=problem, candidate=candidate, seed=3)])
    assert judged.verdict is Verdict.CORRECT, judged.feedback
    [detail] = [finding.detail for finding in judged.findings if finding.rule == "not_exercised"]
    assert detail.startswith("the loop in line 9 has 3 or more turns at the problem's own sizes, and 1 at")
