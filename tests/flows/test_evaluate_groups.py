"""An evaluation of several groups of problems opens its policy once."""

import json
import shutil

import pytest

import kernel_core.policy
from flows.evaluate import evaluate
from kernel_core.config import EvaluateConfig
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.run_folder import Run

FOLDERS = ("evaluate", "evaluate-matrices", "evaluate-rows")


@pytest.fixture()
def opened(monkeypatch):
    """Policies that were opened, in order."""
    policies, open_policy = [], kernel_core.policy.open_policy
    monkeypatch.setattr(
        kernel_core.policy,
        "open_policy",
        lambda *arguments: policies.append(open_policy(*arguments)) or policies[-1],
    )
    return policies


def test_all_groups_are_scored_by_one_policy_and_a_lost_scorecard_is_made_again(
    prefect_api, tmp_path, opened
):
    script, run = tmp_path / "answers.json", Run(str(tmp_path), "scored")
    script.write_text(json.dumps(["no kernel"]))
    config = EvaluateConfig.model_validate(
        {
            "policy": {"kind": "scripted", "model": str(script)},
            "rollout": {"turns": 1, "exemplars": 0},
            "gym": {"workers": 1, "trials": 1, "compile_gate": False},
            "problems": {"split": "held_out", "limit": 1},
            "groups": {
                "matrices": {"limit": 1, "seed": 1},
                "rows": {"limit": 2, "seed": 2},
            },
            "samples_per_problem": 1,
        }
    )
    with judges_kept():
        evaluate(config, run=run.name, root=run.root)
        assert len(opened) == 1
        cards = [load_scorecard(run.store.child(folder)) for folder in FOLDERS]
        assert [card.last.num_samples for card in cards] == [1, 1, 2]
        made = {record.stage: record for record in run.stages()}
        assert list(made) == list(FOLDERS) and {record.status for record in made.values()} == {"done"}

        evaluate(config, run=run.name, root=run.root)
        assert len(opened) == 1

        shutil.rmtree(run.store.path(FOLDERS[1]))
        evaluate(config, run=run.name, root=run.root)
    assert len(opened) == 2
    assert load_scorecard(run.store.child(FOLDERS[1])) == cards[1]
    kept = {record.stage: record for record in run.stages()}
    assert [kept[folder] == made[folder] for folder in FOLDERS] == [True, False, True]
