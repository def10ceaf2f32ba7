"""A scorecard of zeros says why, and what to do next; `dojo runs show` and `answers` show it."""

import pytest

from flows.cli import run as dojo
from kernel_core.config import EvaluateConfig, ProblemsConfig, RolloutConfig, SamplingConfig
from kernel_core.errors import NotFound
from kernel_core.evaluation.diagnosis import diagnose
from kernel_core.evaluation.scorecard import evaluate
from kernel_core.policy.scripted import ScriptedPolicy
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import working_on

CONFIG = EvaluateConfig(
    problems=ProblemsConfig(split="held_out", limit=2, seed=1000),
    rollout=RolloutConfig(turns=1, exemplars=0, sampling=SamplingConfig(max_new_tokens=400)),
)


def row(verdict="correct", finish_reason="stop", feedback="", answer="some text"):
    """One answer."""
    return {
        "verdict": verdict,
        "finish_reason": finish_reason,
        "feedback": feedback,
        "code": None,
        "answer": answer,
    }


def test_verdicts_are_counted_and_equal_faults_of_other_numbers_are_one():
    wrong = [row("wrong", feedback=f"element [{n}, 3] is {n}.5, expected 0\nmore") for n in range(3)]
    found = diagnose([row(), *wrong, row("crashed", feedback="it crashed")], 400)
    assert found.verdicts == (("wrong", 3), ("correct", 1), ("crashed", 1))
    assert found.feedback == (("element [0, 3] is 0.5, expected 0", 3), ("it crashed", 1))
    assert found.next_step == ""


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row("malformed", "length")] * 2, "100 % cut off at 400 tokens: raise rollout.sampling.max_new"),
        ([row("malformed")] * 2, "no kernel in the asked form"),
        ([row("timed_out")] * 2, "raise gym.deadline_s"),
        ([row("malformed", "length"), *[row()] * 9], ""),
    ],
)
def test_the_next_step_follows_from_what_went_wrong(rows, words):
    step = diagnose(rows, 400).next_step
    assert words in step and bool(words) == bool(step)


def test_an_endpoint_gets_advice_that_it_can_follow():
    empty = diagnose([row("malformed", answer=""), row("malformed", answer=" "), row()], 400, "openai")
    assert empty.empty == 2 and "2 of 3 answers are empty" in empty.next_step
    assert {"what": "answers without any text", "value": "2 of 3"} in empty.rows()
    step = diagnose([row("malformed")] * 2, 400, "openai").next_step
    assert "no kernel in the asked form" in step and "cold start" not in step


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, quick_gym):
    """A run with the evaluation of a policy that never writes a kernel."""
    made = Run(str(tmp_path_factory.mktemp("runs")), "mine")
    policy = ScriptedPolicy(lambda messages, seed: "I would rather not.", version="shy")
    settings = CONFIG.model_dump()
    with made.owned("evaluate", {}), working_on(made, "evaluate", settings, {}, folder="evaluate") as work:
        evaluate(CONFIG, policy, quick_gym, None, work.store)
    return made


def test_runs_show_has_the_scorecard_its_conditions_and_its_diagnosis(evaluated, capsys):
    assert dojo(["runs", "show", "mine", "--root", evaluated.root]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "scorecard of shy: suite generated, split held_out, seed 1000, limit 2" in shown
    assert "answers malformed │ 4 of 4" in shown and "cut off by the token limit │ 0 %" in shown
    assert "next step" in shown and "most answers hold no kernel" in shown


def test_runs_answers_shows_them_by_verdict_and_problem(evaluated, capsys):
    assert dojo(["runs", "answers", "mine", "--root", evaluated.root, "-n", "3"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("=== evaluate: ") == 3
    assert "malformed" in shown and "no <KERNEL> block" in shown
    assert dojo(["runs", "answers", "mine", "--root", evaluated.root, "--verdict", "correct"]) == 2
    assert "no such answers in" in capsys.readouterr().err
    assert NotFound.exit_code == 2
