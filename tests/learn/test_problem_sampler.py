"""What a run practises on, and what it is probed on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kernel_core.config import CurriculumConfig, ProblemsConfig, TrainConfig, WeightedSuite
from kernel_core.errors import ConfigError
from kernel_core.learn.problem_sampler import Practice
from kernel_core.problems.file_splits import file_split
from kernel_core.reward.curriculum import CurriculumState

PROBLEM = (
    "import torch\n\nN = 8\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    "        return x + {}\n\n\n"
    "def get_inputs():\n    return [torch.randn(N)]\n\n\ndef get_init_inputs():\n    return []\n"
)


def folder_of(root: Path, count: int) -> Path:
    for number in range(count):
        (root / f"add_{number}.py").write_text(PROBLEM.format(number))
    return root


def config_of(**problems) -> TrainConfig:
    return TrainConfig(
        problems_per_step=8,
        problems=ProblemsConfig(audited=False, **problems),
        curriculum=CurriculumConfig(probe_problems=4),
    )


def practised(practice: Practice, steps: int = 12) -> list:
    return [problem for step in range(steps) for problem in practice.choose(CurriculumState(), step)]


@pytest.mark.parametrize("file_split_of_run", ["all", "train"])
def test_a_folder_is_probed_on_problems_that_no_step_practises(tmp_path, file_split_of_run):
    practice = Practice.open(config_of(suite=str(folder_of(tmp_path, 80)), file_split=file_split_of_run))
    probes = {problem.id for problem in practice.probe_problems()}
    seen = {problem.id for problem in practised(practice)}
    assert len(probes) == 4
    assert not probes & seen
    assert {file_split(problem) for problem in probes} == {"validation"}
    assert ("held_out" in {file_split(problem) for problem in seen}) == (file_split_of_run == "all")


def test_a_folder_too_small_to_divide_is_probed_on_all_of_it(tmp_path):
    practice = Practice.open(config_of(suite=str(folder_of(tmp_path, 8))))
    assert len({problem.id for problem in practised(practice)}) == 8
    assert len(practice.probe_problems()) == 4


def test_a_folder_smaller_than_a_step_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="lower problems_per_step"):
        Practice.open(config_of(suite=str(folder_of(tmp_path, 7))))


def test_steps_draw_from_the_suites_by_their_weights(tmp_path):
    mix = (
        WeightedSuite(suite="generated", weight=1),
        WeightedSuite(suite="modules", weight=2),
        WeightedSuite(suite=str(folder_of(tmp_path, 80)), weight=1),
    )
    practice = Practice.open(config_of(mix=mix))
    first = practice.choose(CurriculumState(), 1)
    assert first == practice.choose(CurriculumState(), 1)
    assert len({problem.id for problem in first}) == 8
    suites = Counter(problem.suite for problem in practised(practice, 12))
    assert set(suites) == {"generated", "modules", tmp_path.name}
    assert 0.4 < suites["modules"] / (12 * 8) < 0.6
    further = practice.choose(CurriculumState(), 1, draw=1, taken=first)
    assert not {problem.id for problem in first} & {problem.id for problem in further}
    assert {problem.suite for problem in practice.probe_problems()} == set(suites)


def test_what_a_small_suite_lacks_comes_from_the_others(tmp_path):
    mix = (WeightedSuite(suite=str(folder_of(tmp_path, 2)), weight=9), WeightedSuite(suite="generated"))
    practice = Practice.open(config_of(mix=mix))
    assert len(practice.choose(CurriculumState(), 1)) == 8
