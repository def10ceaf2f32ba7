"""No text and no tuple of sizes of KernelBench reaches training."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_core.config import IngestConfig
from kernel_core.corpus.kernelbench_leaks import NEAR, SAME, SIZES, KernelBenchLeaks, known_kernelbench
from kernel_core.corpus.snapshot import build_snapshot, load_report
from kernel_core.problems.evaluation_sizes import (
    SIZES_FILE,
    has_evaluation_sizes,
    size_digest,
    size_digests,
    size_tuple,
)
from kernel_core.problems.generate import generate
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.problems.source import parse_problem, resize
from kernel_core.store import Store

needs_checkout = pytest.mark.skipif(
    not os.environ.get("KERNELBENCH_ROOT"), reason="KERNELBENCH_ROOT names no checkout of KernelBench"
)

SCALED = """import torch
import torch.nn as nn


class Model(nn.Module):
    \"\"\"Scales rows and adds a bias.\"\"\"

    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = torch.sigmoid(x + self.bias)
        return torch.relu(y * 2.0 - x)


rows = 4321
features = 765


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
"""
"""A stand-in for a problem of KernelBench; its sizes are no published ones."""


def problem_of(source: str, name: str = "mine"):
    return parse_problem(source, id=f"folder/{name}", suite="folder")


@pytest.fixture(scope="module")
def rules() -> KernelBenchLeaks:
    return KernelBenchLeaks([parse_problem(SCALED, id="kernelbench/level1/1_Scaled", suite="kernelbench")])


def test_the_same_computation_in_other_names_is_found(rules):
    renamed = SCALED.replace("self.bias", "self.shift").replace("Scales rows and adds a bias.", "Mine.")
    assert rules.leak(problem_of(renamed)) == (SAME, "kernelbench/level1/1_Scaled")


def test_a_text_with_a_word_changed_is_a_near_duplicate(rules):
    longer = SCALED.replace("rows = 4321", "rows = 1111")
    assert rules.leak(problem_of(longer)) == (NEAR, "kernelbench/level1/1_Scaled")


def test_the_same_sizes_are_found_in_any_problem_and_order(rules):
    problem = generate("train", 1, 0)[0].problem
    names = [name for name, value in problem.constants.items() if type(value) is int]
    other = problem_of(
        "WIDTH = 765\nDEPTH = 4321\n"
        + SCALED.split("rows =")[0].replace("relu", "tanh").replace("2.0", "3.5")
        + "\n\ndef get_inputs():\n    return [torch.randn(DEPTH, WIDTH)]\n"
        + "\n\ndef get_init_inputs():\n    return [WIDTH]\n"
    )
    assert rules.leak(other) == (SIZES, "kernelbench/level1/1_Scaled")
    assert rules.leak(resize(problem, dict.fromkeys(names, 99))) is None


def test_one_size_alone_says_nothing():
    assert size_tuple([64]) == ()
    assert size_tuple([64, True, 0.5]) == ()
    assert size_tuple([64, 0.5, 16]) == (16, 64)


def test_of_drawn_problems_and_a_copy_the_copy_alone_leaks(rules):
    problems = [problem_of(SCALED), *(made.problem for made in generate("train", 5, 0))]
    leaks = [rules.leak(problem) for problem in problems]
    assert leaks == [(SAME, "kernelbench/level1/1_Scaled"), *[None] * 5]


def test_an_ingest_knows_kernelbench_where_a_checkout_is_named(tmp_path: Path, monkeypatch):
    made = generate("train", 4, 0)
    level = tmp_path / "checkout" / "level1"
    for number in range(1, 5):
        (level.parent / f"level{number}").mkdir(parents=True)
        (level.parent / f"level{number}" / "1_Stand_in.py").write_text(SCALED)
    (level / "2_Drawn.py").write_text(made[0].problem.source)
    config = IngestConfig(generator_rows=4, decontaminate_against=("dojo",))
    without, with_checkout = Store(tmp_path / "without"), Store(tmp_path / "with")
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    first = build_snapshot(config, without)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(level.parent))
    second = build_snapshot(config, with_checkout)
    assert first.meta["config_digest"] != second.meta["config_digest"]
    report = load_report(with_checkout)
    assert report.num_references == load_report(without).num_references - 1
    assert {entry.reason for entry in report.dropped if entry.step == "decontaminate"} == {SAME}


def test_no_drawn_module_has_sizes_of_kernelbench():
    drawn = list(generate_modules("train", 60, 11))
    assert not [problem.id for problem in drawn if has_evaluation_sizes(problem.constants.values())]


@needs_checkout
def test_the_digests_are_those_of_the_checkout():
    lines = [line for line in SIZES_FILE.read_text().splitlines() if not line.startswith("#")]
    assert lines == size_digests(known_kernelbench().problems)
    assert size_digest((1, 2)) not in lines


@needs_checkout
@pytest.mark.slow
def test_a_thousand_drawn_modules_give_nothing_of_kernelbench_away():
    rules = known_kernelbench()
    drawn = [
        problem
        for split, count in (("train", 900), ("held_out", 100))
        for problem in generate_modules(split, count, 0)
    ]
    assert len(drawn) == 1000
    assert not [leak for problem in drawn if (leak := rules.leak(problem))]
