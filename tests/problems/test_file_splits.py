"""Splits of file suites, mixtures, and problems of a snapshot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kernel_core.config import IngestConfig, ProblemsConfig, WeightedSuite
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.errors import ConfigError, NotFound
from kernel_core.problems.file_splits import file_split
from kernel_core.problems.load import load_problems
from kernel_core.store import Store

PROBLEM = (
    "import torch\n\nN = 8\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x + {}\n\n\n"
    "def get_inputs():\n    return [torch.randn(N)]\n\n\ndef get_init_inputs():\n    return []\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Sixty problems."""
    root = tmp_path_factory.mktemp("sixty")
    for number in range(60):
        (root / f"add_{number}.py").write_text(PROBLEM.format(number))
    return root


def ids(**settings) -> set[str]:
    return {problem.id for problem in load_problems(ProblemsConfig(**settings))}


def test_a_folder_is_given_whole_unless_a_share_is_asked_for(folder):
    every = ids(suite=str(folder), split="held_out")
    assert len(every) == 60
    shares = [ids(suite=str(folder), file_split=split) for split in ("train", "validation", "held_out")]
    assert set.union(*shares) == every
    assert sum(map(len, shares)) == 60
    assert len(shares[0]) > 35
    assert all(shares)


def test_about_eight_in_ten_ids_are_for_training():
    counts = Counter(file_split(f"suite/problem_{number}") for number in range(5000))
    assert 0.78 < counts["train"] / 5000 < 0.82
    assert 0.08 < counts["validation"] / 5000 < 0.12


def test_problems_that_differ_in_their_sizes_share_a_split():
    digests = ("0f3a91bc", "77aa01cd", "deadbeef")
    for number in range(50):
        assert len({file_split(f"harvest/timm_Layer{number}_{digest}") for digest in digests}) == 1


def test_an_empty_share_says_what_to_set(tmp_path):
    (tmp_path / "one.py").write_text(PROBLEM.format(1))
    splits = {"train", "validation", "held_out"} - {file_split(f"{tmp_path.name}/one")}
    with pytest.raises(NotFound, match=r"file_split=all"):
        load_problems(ProblemsConfig(suite=str(tmp_path), file_split=splits.pop()))


def test_the_suite_of_modules_is_drawn_like_the_generator():
    config = ProblemsConfig(suite="modules", limit=6, seed=3)
    assert load_problems(config) == load_problems(config)
    assert all(problem.suite == "modules" for problem in load_problems(config))
    longer = load_problems(config.model_copy(update={"limit": 8}))
    assert longer[:6] == load_problems(config)
    with pytest.raises(ConfigError, match="no problem family"):
        load_problems(ProblemsConfig(suite="modules", families=("no_such_family",)))


def test_a_mixture_gives_each_suite_its_share(folder):
    mix = (WeightedSuite(suite="generated", weight=3), WeightedSuite(suite=str(folder), weight=1))
    found = Counter(problem.suite for problem in load_problems(ProblemsConfig(mix=mix, limit=20)))
    assert found == {"generated": 15, folder.name: 5}
    with pytest.raises(ConfigError, match="narrows one suite"):
        load_problems(ProblemsConfig(mix=mix, families=("softmax",)))


def test_a_snapshot_supplies_its_references_as_problems(tmp_path):
    store = Store(tmp_path / "snapshot")
    build_snapshot(IngestConfig(generator_rows=5, decontaminate_against=("dojo",)), store)
    problems = load_problems(ProblemsConfig(suite=f"snapshot:{store.root}"))
    assert {problem.source for problem in problems} == {row.reference_code for row in load_snapshot(store)}
    assert len({problem.id for problem in problems}) == len(problems) == 5
    assert all(problem.cpu_constants for problem in problems)
    with pytest.raises(NotFound):
        load_problems(ProblemsConfig(suite=f"snapshot:{tmp_path / 'nothing'}"))
