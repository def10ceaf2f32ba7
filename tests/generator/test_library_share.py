"""Large products: written where the kernels beside them would do next to nothing."""

from __future__ import annotations

import pytest

from kernel_core.generator.graded import whole_answer
from kernel_core.generator.library import LEAST_SHARE
from kernel_core.problems.source import parse_problem

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn({m}, {k})]


def get_init_inputs():
    return [{k}, {n}]
"""


@pytest.mark.parametrize("forward", ["torch.relu(self.fc(x))", "torch.softmax(self.fc(x), dim=-1)"])
@pytest.mark.parametrize(("sizes", "is_written"), [((1024, 8192, 8192), True), ((1024, 256, 8192), False)])
def test_a_product_stays_where_its_tail_has_work(
    forward: str, sizes: tuple[int, int, int], is_written: bool
) -> None:
    m, k, n = sizes
    source = SOURCE.format(forward=forward, m=m, k=k, n=n)
    answer = whole_answer(parse_problem(source, id="tail", suite="test", family=""))
    assert ("dot" in answer.kinds) == is_written
    assert answer.own_share >= LEAST_SHARE
    assert (answer.own_share == 1.0) == is_written
