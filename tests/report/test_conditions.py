"""A scorecard, a night and a table of winners say on which problems and how often the policy was asked."""

import pytest

from kernel_core.config import BestOfNConfig, EvaluateConfig
from kernel_core.report.conditions import conditions_in_words, conditions_of
from kernel_core.runs.run_folder import Run, StageRecord


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (EvaluateConfig(), "suite generated, split held_out, seed 1000, limit 24, turns 2, samples 2"),
        (BestOfNConfig(), "suite generated, split held_out, seed 2000, limit 6, turns 1, samples 8"),
        (
            BestOfNConfig(mode="sequential", problems={"suite": "dojo", "limit": None}),
            "suite dojo, split held_out, seed 2000, limit none, turns 8, samples 1",
        ),
        (
            EvaluateConfig(problems={"mix": [{"suite": "modules"}, {"suite": "dojo"}]}),
            "suite modules + dojo, split held_out, seed 1000, limit 24, turns 2, samples 2",
        ),
    ],
)
def test_conditions_name_suite_split_seed_limit_turns_and_samples(config, words):
    told = conditions_in_words(config.model_dump(mode="json"))
    assert told == f"{words}, tolerance measured, speed-ups predicted for H200 over eager"


def test_conditions_name_the_baseline_and_the_tolerance_of_a_gpu_judge():
    config = EvaluateConfig(gym={"device": "cuda", "baseline": "fair", "tolerance": "field"})
    told = conditions_in_words(config.model_dump(mode="json"))
    assert told.endswith("tolerance field, speed-ups measured over the baseline fair")


def test_a_stage_without_a_record_has_no_conditions(tmp_path):
    assert conditions_of(Run(str(tmp_path), "mine"), "evaluate") == ""


def test_the_conditions_of_a_stage_are_those_it_was_begun_with(tmp_path):
    run = Run(str(tmp_path), "mine")
    config = EvaluateConfig(samples_per_problem=5).model_dump(mode="json")
    run.record(StageRecord(stage="evaluate", status="done", config=config, inputs={}, code="", begun_at=""))
    assert conditions_of(run, "evaluate").startswith(
        "suite generated, split held_out, seed 1000, limit 24, turns 2, samples 5"
    )
