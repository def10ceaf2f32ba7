"""Answers of the table and of each schedule against torch, through Triton's interpreter, at ragged sizes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.generator.answer import answer
from kernel_core.generator.read import Unreadable
from kernel_core.problems.source import parse_problem
from tests.generator.small_problems import BY_SCHEDULE, NUMBER, ROWS, of_table, problem

HERE = Path(__file__).parent
SAMPLE = 8
"""Problems of each kind in the fast suite, other ones with each operator that is added."""


def outcomes(problems: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(HERE / "check_answers.py")],
        input=json.dumps(list(problems.values())),
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(problems, json.loads(done.stdout.splitlines()[-1]), strict=True))


def sampled(problems: dict[str, str]) -> dict[str, str]:
    names = random.Random(len(problems)).sample(sorted(problems), SAMPLE)
    return {name: problems[name] for name in names}


def wrong(problems: dict[str, str]) -> dict[str, str]:
    return {name: outcome for name, outcome in outcomes(problems).items() if outcome != "correct"}


def test_some_operators_and_schedules_agree_with_torch():
    assert not wrong(sampled(of_table()) | sampled(BY_SCHEDULE))


@pytest.mark.exhaustive
def test_all_operators_of_the_table_agree_with_torch():
    assert not wrong(of_table())


@pytest.mark.exhaustive
def test_all_schedules_agree_with_torch():
    assert not wrong(BY_SCHEDULE)


def test_a_layer_that_stays_torchs_is_no_answer():
    source = problem("self.layer(a)", ROWS, layers="self.layer = nn.GRU(77, 8)")
    with pytest.raises(Unreadable, match="nothing to write a kernel for; GRU: a layer without a schedule"):
        answer(parse_problem(source, id="test", suite="test"))


def test_a_number_is_not_reduced():
    source = answer(parse_problem(NUMBER, id="test", suite="test")).source
    assert not re.search(r"tl\.(sum|max|min|reduce|argmin)\(", source)


@pytest.mark.parametrize("name", ["product_with_a_column", "product_with_a_row", "linear_of_a_row"])
def test_a_product_with_a_vector_is_a_sum(name):
    source = answer(parse_problem(BY_SCHEDULE[name], id="test", suite="test")).source
    assert "tl.dot" not in source and "tl.sum" in source


def test_a_long_product_is_added_up_in_parts_that_are_rounded():
    lines = answer(parse_problem(BY_SCHEDULE["long_product"], id="test", suite="test")).source.splitlines()
    (dot,) = (line for line in lines if "tl.dot" in line)
    (total,) = (line for line in lines if "acc += part" in line)
    assert dot.strip().startswith("part = ") and dot.index("part") == total.index("acc") + 4


def test_the_table_has_more_than_a_hundred_of_torchs_names():
    assert len(of_table()) > 100
