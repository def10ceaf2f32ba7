"""Each size comes to its own value, or as near as is little enough, and divides as its own does."""

from __future__ import annotations

import pytest

from kernel_core.gym.judge.scaled_sizes import grown_sizes
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


def test_sizes_that_go_together_only_as_they_are_stay() -> None:
    assert _grown(_HEADS, WIDTH=32, HEADS=2, DIM=16) == []
