"""Figures of taught policies from the folders of runs."""

import pytest

from flows.cli import run as dojo
from kernel_core.dialogue.answers import KeptAnswer, KeptAnswers
from kernel_core.report.taught import sampled_entropy
from kernel_core.store import Store


def answer(sample, num_tokens, logprob):
    return KeptAnswer(
        problem_id="p", sample=sample, text="", policy_version="v", num_tokens=num_tokens, logprob=logprob
    )


def test_entropy_is_over_the_tokens_of_answers_with_known_log_probabilities(tmp_path):
    kept = KeptAnswers(Store(tmp_path))
    kept.keep([answer(0, 5, -10.0), answer(1, 15, -2.0), answer(2, 400, None)])
    assert sampled_entropy(KeptAnswers(Store(tmp_path))) == pytest.approx(12 / 20)
    assert sampled_entropy(KeptAnswers(Store(tmp_path), answers={("p", 2, 0): answer(2, 400, None)})) is None


def test_runs_that_taught_nothing_are_named(tmp_path, capsys):
    Store(tmp_path / "empty").write_json("config.json", {})
    assert dojo(["runs", "taught", "--root", str(tmp_path)]) == 2
    assert "at least one run" in capsys.readouterr().err
    assert dojo(["runs", "taught", "empty", "--root", str(tmp_path)]) == 2
    assert "no policy was taught in empty" in capsys.readouterr().err
