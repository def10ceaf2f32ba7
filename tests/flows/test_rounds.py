"""Rounds of expert iteration inside a pipeline, with the shipped policy and the real judge."""

import pytest
from pydantic import ValidationError

from flows.pipeline import pipeline
from flows.presets import build_parameters, preset
from kernel_core.config import PipelineConfig
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.learn.cold_start.chat_files import read_transcripts
from kernel_core.learn.cold_start.verified_chats import CHATS
from kernel_core.policy import SHIPPED
from kernel_core.report.taught import taught_rows
from kernel_core.runs.forecast import forecast
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import sealed_digest

ROUND_STAGES = [
    *("ingest", "index", "evaluate-before"),
    *("round-1-answers", "round-1-winners", "round-1", "round-1-evaluate"),
    *("round-2-answers", "round-2-winners", "round-2", "evaluate-after", "best-of-n"),
]


def smallest(root, run, **changes):
    """A pipeline of two rounds; half of the shipped policy's answers are correct."""
    gym = {"workers": 2, "trials": 1, "compile_gate": False}
    rollout = {"turns": 1, "exemplars": 0}
    settings = {
        "run": run,
        "root": root,
        "ingest": {"generator_rows": 40, "decontaminate_against": ["dojo"]},
        "train": {
            "method": "frozen",
            "steps": 1,
            "problems_per_step": 1,
            "group_size": 2,
            "gym": gym,
            "rollout": rollout,
            "curriculum": {"probe_problems": 1},
        },
        "rounds": {"number": 2, "limit": 3, "samples": 4, "teach": {"steps": 3, "warmup": 1, "lr": 0.0001}},
        "evaluate": {"problems": {"limit": 2}, "samples_per_problem": 2, "gym": gym, "rollout": rollout},
        "best_of_n": {"problems": {"limit": 1}, "n": 2, "gym": gym, "rollout": rollout},
    }
    return PipelineConfig.model_validate(settings | changes)


@pytest.fixture(scope="module")
def finished(prefect_api, tmp_path_factory):
    """A pipeline of two rounds that went through."""
    config = smallest(str(tmp_path_factory.mktemp("runs")), "rounds")
    with judges_kept():
        pipeline(config)
        yield config


@pytest.mark.exhaustive
def test_each_round_asks_keeps_teaches_and_measures(finished):
    run = Run(finished.root, finished.run)
    assert [record.stage for record in run.stages()] == ROUND_STAGES
    asked = [load_scorecard(run.store.child(f"round-{number}-answers")) for number in (1, 2)]
    assert [card.last.num_samples for card in asked] == [12, 12]
    assert not {p.problem_id for p in asked[0].problems} & {p.problem_id for p in asked[1].problems}
    kept = [read_transcripts([run.store.path(f"round-{number}-winners/{CHATS}")]) for number in (1, 2)]
    assert 0 < len(kept[0]) < len(kept[1])  # the winners of both rounds
    assert {answer.answer for answer in kept[0]} <= {answer.answer for answer in kept[1]}
    # Each round teaches the policy that the rounds began with; the second asks the first one's.
    assert run.stage("round-2").config["policy"]["model"] == str(SHIPPED)
    assert run.stage("round-2-answers").inputs["weights"] == sealed_digest(run.store.child("round-1"))
    assert run.stage("evaluate-after").inputs["weights"] == sealed_digest(run.store.child("round-2"))


@pytest.mark.exhaustive
def test_one_table_has_the_winners_the_figures_and_the_minutes_of_each_round(finished):
    run = Run(finished.root, finished.run)
    rows = {row["scorecard"]: row for row in taught_rows([run])}
    assert list(rows) == ["round-1-evaluate", "round-2-answers", "evaluate-after"]
    assert [row["taught"] for row in rows.values()] == ["round-1", "round-1", "round-2"]
    winners = [run.store.child(f"round-{number}-winners") for number in (1, 2)]
    counts = [store.open_sealed("verified-chats").meta["kernels"] for store in winners]
    assert [rows[name]["conversations"] for name in ("round-1-evaluate", "evaluate-after")] == counts
    assert all({"pass@1", "pass@2", "entropy", "minutes"} <= row.keys() for row in rows.values())


@pytest.mark.exhaustive
def test_the_same_command_again_makes_nothing_and_a_lost_round_is_made_again_alike(finished):
    run = Run(finished.root, finished.run)
    before, digest = run.stages(), sealed_digest(run.store.child("round-2"))
    pipeline(finished)
    assert run.stages() == before
    run.store.remove("round-2")
    pipeline(finished)
    assert sealed_digest(run.store.child("round-2")) == digest
    assert {r.stage for r in run.stages() if r not in before} == {"round-2"}


@pytest.mark.exhaustive
def test_rl_goes_on_from_the_last_round(finished):
    training = {**finished.train.model_dump(exclude_unset=True), "method": "rl"}
    rounds = {"number": 1, "limit": 2, "samples": 4, "restart": False, "teach": {"steps": 2}}
    config = smallest(finished.root, "then-rl", train=training, rounds=rounds)
    pipeline(config)
    run = Run(config.root, config.run)
    assert [record.stage for record in run.stages()][-5:] == [
        *("round-1", "round-1-evaluate", "train", "evaluate-after", "best-of-n")
    ]
    assert run.stage("train").inputs["taught"] == sealed_digest(run.store.child("round-1"))
    before = run.stages()
    pipeline(config)
    assert run.stages() == before


def test_the_preset_of_a_code_model_plans_three_rounds_and_no_rl():
    config = build_parameters("pipeline", preset("pipeline", "coder-rounds"))["config"]
    planned = [stage.stage for stage in forecast(config)]
    assert planned[-11:] == [
        *("evaluate-before", "round-1-answers", "round-1", "round-1-evaluate"),
        *("round-2-answers", "round-2", "round-2-evaluate", "round-3-answers", "round-3"),
        *("evaluate-after", "best-of-n"),
    ]
    taught = config.round_taught("FOLDER", "chats.jsonl")
    assert taught.cold_start.steps == 50 and taught.cold_start.batch_tokens == 65536
    assert taught.as_taught.policy.lora_rank is None


def test_rounds_that_would_teach_nothing_are_refused():
    with pytest.raises(ValidationError, match=r"set rounds\.teach\.steps"):
        PipelineConfig(train={"cold_start": "none"}, rounds={"number": 1})
    with pytest.raises(ValidationError, match="local weights"):
        PipelineConfig(train={"policy": {"kind": "scripted"}}, rounds={"number": 1})
