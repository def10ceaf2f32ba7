"""Each size comes to its own value, or as near as is little enough, and divides as its own does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.gym.judge.scaled_sizes import grown_sizes, in_order
from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.source import parse_problem
from kernel_core.records import Constant

from .conftest import HEAD

_ROWS = """
M = OWN_M
N = OWN_N

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(M, N)]

def get_init_inputs():
    return []
"""
_HEADS = """
WIDTH = 512
HEADS = 8
DIM = 64

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x.view(4, HEADS, DIM))

def get_inputs():
    return [torch.randn(4, WIDTH)]

def get_init_inputs():
    return []
"""


def _grown(text: str, **run: Constant) -> list[dict[str, Constant]]:
    problem = parse_problem(HEAD + text, id="test/grown", suite="test")
    return list(grown_sizes(Reference(problem, run)))


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ((8192, 4096), [{"M": 12, "N": 4096}, {"M": 128, "N": 128}]),
        ((16, 256), [{"M": 16, "N": 256}]),
        ((12, 100), []),
    ],
)
def test_sizes_come_to_their_own_values_together_where_there_is_room(
    own: tuple[int, int], expected: list[dict[str, Constant]]
) -> None:
    text = _ROWS.replace("OWN_M", f"{own[0]}").replace("OWN_N", f"{own[1]}")
    assert _grown(text, M=12, N=100) == expected


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 64), st.integers(1, 400), st.integers(1, 8))
def test_what_divides_run_and_own_size_divides_every_size_between(group: int, own: int, run: int) -> None:
    text = _ROWS.replace("OWN_M", f"{own * group}").replace("OWN_N", f"{own * group}")
    for sizes in _grown(text, M=run * group, N=run * group):
        assert all(int(str(size)) % group == 0 for size in sizes.values())


def test_sizes_that_go_together_only_as_they_are_stay() -> None:
    assert _grown(_HEADS, WIDTH=32, HEADS=2, DIM=16) == []


_TAKEN = """
TAKEN = 2048
ROWS = 4096

class Model(nn.Module):
    def forward(self, x, places):
        return x[places]

def get_inputs():
    return [torch.randn(ROWS, 8), torch.randint(0, ROWS, (TAKEN,))]

def get_init_inputs():
    return []
"""


def test_sizes_that_break_the_order_of_real_sizes_have_a_neighbour_that_keeps_it() -> None:
    problem = parse_problem(HEAD + _TAKEN, id="test/order", suite="test")
    reference = Reference(problem, {"TAKEN": 21, "ROWS": 77})
    assert in_order(reference, {"TAKEN": 21, "ROWS": 77}) is None
    found = in_order(reference, {"TAKEN": 1024, "ROWS": 77})
    assert found == {"TAKEN": 1024, "ROWS": 2048}


def test_equal_sizes_break_an_order_too() -> None:
    """A block of the rows that are not taken may be empty there."""
    problem = parse_problem(HEAD + _TAKEN, id="test/order", suite="test")
    reference = Reference(problem, {"TAKEN": 21, "ROWS": 77})
    assert in_order(reference, {"TAKEN": 77, "ROWS": 77}) == {"TAKEN": 77, "ROWS": 128}


def test_the_neighbour_divides_as_real_sizes_do() -> None:
    text = _TAKEN.replace("TAKEN = 2048", "TAKEN = 64").replace("ROWS = 4096", "ROWS = 512")
    reference = Reference(parse_problem(HEAD + text, id="test/order", suite="test"), {"TAKEN": 3, "ROWS": 16})
    assert in_order(reference, {"TAKEN": 64, "ROWS": 32}) == {"TAKEN": 64, "ROWS": 128}


def test_sizes_of_no_common_order_are_left_alone() -> None:
    problem = parse_problem(HEAD + _TAKEN, id="test/order", suite="test")
    assert in_order(Reference(problem, {"TAKEN": 77, "ROWS": 21}), {"TAKEN": 1024, "ROWS": 21}) is None
